"""What the Python SDK of AgentFS does with a session. Usage: steps.py STEP SESSION"""

import asyncio
import sys

from agentfs_sdk import AgentFS, AgentFSOptions


def same(expected, found, what):
    assert expected == found, f"{what}: expected {expected!r}, found {found!r}"


async def read_ours(agent):
    fs = agent.fs
    same("of the base\n", await fs.read_file("/moved/file"), "a file of a renamed directory")
    same("deep\n", await fs.read_file("/moved/deep/file"), "a file below it")
    same("Linked\n", await fs.read_file("/keep/two"), "a further name of a changed file")
    data = await fs.read_file("/sparse", encoding=None)
    same(b"begin" + b"\0" * 299_990 + b"ended", data, "a file with holes")
    same(["deep", "file"], sorted(await fs.readdir("/moved")), "a listing")
    same(300_000, (await fs.stat("/sparse")).size, "a size")
    same({"n": 1}, await agent.kv.get("from:us"), "a value")
    call = (await agent.tools.get_by_name("build"))[0]
    same(("success", {"a": 1}, "ok"), (call.status, call.parameters, call.result), "a tool call")


async def write_ours(agent):
    await agent.fs.write_file("/by/python.txt", "by python")
    await agent.fs.write_file("/moved/file", "changed by python")
    await agent.fs.delete_file("/moved/deep/file")
    await agent.kv.set("from:python", [1, 2, 3])
    call = await agent.tools.start("search", {"query": "interop"})
    await agent.tools.success(call, {"found": 2})


async def make_theirs(agent):
    await agent.fs.write_file("/data/notes.txt", "Hello")
    await agent.fs.write_file("/data/large.bin", b"x" * 100_000)
    await agent.fs.write_file("/data/gone.txt", "gone")
    await agent.fs.delete_file("/data/gone.txt")
    await agent.fs.mkdir("/empty")
    await agent.kv.set("config", {"debug": True})
    call = await agent.tools.start("search", {"query": "interop"})
    await agent.tools.error(call, "no network")


async def read_theirs(agent):
    same("Hello", await agent.fs.read_file("/data/notes.txt"), "their own file")
    same("again", await agent.fs.read_file("/data/again"), "a file that we made")
    same({"debug": True}, await agent.kv.get("config"), "their own value")


STEPS = {
    "read-ours": read_ours,
    "write-ours": write_ours,
    "make-theirs": make_theirs,
    "read-theirs": read_theirs,
}


async def main(step, session):
    agent = await AgentFS.open(AgentFSOptions(path=session))
    try:
        await STEPS[step](agent)
    finally:
        await agent.close()


asyncio.run(main(*sys.argv[1:]))
