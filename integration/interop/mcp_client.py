"""`acetate mcp` with the official Python client: every tool, every error, sizes over the limit, two
clients at once.

Usage: mcp_client.py ACETATE SESSION, of a session over a base with /src/a ("of the base") alone.
"""

import asyncio
import base64
import sys

from mcp import Client, MCPError, StdioServerParameters

ACETATE, SESSION = sys.argv[1:]

READING = "read_file readdir stat search diff log checkpoint_list kv_get kv_list".split()
CHANGING = "write_file mkdir remove rename checkpoint_create restore kv_set kv_delete".split()


def server(*options):
    return StdioServerParameters(command=ACETATE, args=["mcp", SESSION, *options])


def same(found, expected, what):
    if found != expected:
        sys.exit(f"{what}\n  expected: {expected}\n  found:    {found}")


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    same(result.is_error, False, f"{tool} {str(arguments)[:100]}: {result.content}")
    return result.structured_content


async def text(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    same(result.is_error, False, f"{tool} {arguments}: {result.content}")
    return "".join(block.text for block in result.content)


async def fails(client, tool, expected, **arguments):
    result = await client.call_tool(tool, arguments)
    told = result.content[0].text
    same((result.is_error, expected in told), (True, True), f"{tool}: {told}")


async def refused(code, request):
    try:
        same(await request, None, "not refused")
    except MCPError as error:
        same(error.code, code, error.message)


async def every_tool(client):
    tools = (await client.list_tools()).tools
    same([tool.name for tool in tools], READING + CHANGING, "the tools")
    same(await text(client, "read_file", path="src/a"), "of the base", "a file of the base")
    written = await call(client, "write_file", path="src/a", content="changed é\n")
    same(written["bytes"], 11, "what is written")
    before = str(written["checkpoint"])
    await call(client, "mkdir", path="d/e", parents=True)
    await call(client, "rename", **{"from": "src/a", "to": "d/e/b"})
    names = [entry["name"] for entry in (await call(client, "readdir", path="d/e"))["entries"]]
    same(names, ["b"], "a directory")
    same((await call(client, "stat", path="d/e/b"))["size"], 11, "a size")
    found = await call(client, "search", pattern="chang.d")
    same([one["path"] for one in found["matches"]], ["/d/e/b"], "a search")
    same((await call(client, "diff", **{"from": before}))["changes"] > 0, True, "a diff")
    patch = await text(client, "diff", **{"from": before, "patch": True})
    same("+changed é" in patch, True, f"a patch: {patch}")
    await call(client, "checkpoint_create", labels={"by": "python"})
    listed = await call(client, "checkpoint_list")
    same(listed["checkpoints"][-1]["labels"], {"by": "python"}, "a checkpoint")
    await call(client, "remove", path="d", recursive=True)
    same((await call(client, "log", limit=1))["changes"][0]["path"].startswith("/d"), True, "log")
    restored = await call(client, "restore", checkpoint=before)
    same(str(restored["restored"]), before, "a restore")
    same(await text(client, "read_file", path="src/a"), "of the base", "what came back")
    await call(client, "kv_set", key="k", value={"n": [1.5, None]})
    same((await call(client, "kv_get", key="k"))["value"], {"n": [1.5, None]}, "a value")
    same([one["key"] for one in (await call(client, "kv_list"))["keys"]], ["k"], "keys")
    await call(client, "kv_delete", key="k")
    blob = base64.b64encode(bytes(range(256))).decode()
    await call(client, "write_file", path="bin", content=blob, encoding="base64")
    same(await text(client, "read_file", path="bin", encoding="base64"), blob, "bytes")
    resources = {resource.name: resource.uri for resource in (await client.list_resources()).resources}
    same(sorted(resources), ["/bin", "/src/a"], "resources")
    contents = (await client.read_resource(resources["/src/a"])).contents
    same(contents[0].text, "of the base", "a text as a resource")
    contents = (await client.read_resource(resources["/bin"])).contents
    same(contents[0].blob, blob, "bytes as a resource")
    same(len((await client.list_resource_templates()).resource_templates), 1, "templates")
    await call(client, "remove", path="bin")


async def every_error(client):
    await fails(client, "read_file", "/no: no such file", path="no")
    await fails(client, "readdir", "not a directory", path="src/a")
    await fails(client, "stat", "no such file", path="src/no")
    await fails(client, "search", "not a regular expression", pattern="(")
    await fails(client, "diff", "no such checkpoint", **{"from": "never"})
    await fails(client, "log", "no such checkpoint", since_checkpoint="never")
    await fails(client, "checkpoint_list", "between 1 and", limit=1001)
    await fails(client, "kv_get", "no such key", key="no")
    await fails(client, "kv_list", "unknown field", no=1)
    await fails(client, "write_file", "/no: no such file", path="no/a", content="")
    await fails(client, "mkdir", '"parents": true', path="no/a")
    await fails(client, "remove", '"recursive": true', path="src")
    await fails(client, "rename", "no such file", **{"from": "no", "to": "a"})
    await fails(client, "checkpoint_create", "looks like an id", name="12")
    await fails(client, "restore", "no such checkpoint", checkpoint="never")
    await fails(client, "kv_set", "missing field `value`", key="k")
    await fails(client, "kv_delete", "no such key", key="no")
    await refused(-32602, client.call_tool("unknown", {}))
    # Which code it is depends on the version of the protocol.
    try:
        same(await client.read_resource("acetate:///no"), None, "not refused")
    except MCPError as error:
        same("no such file" in error.message, True, error.message)


async def sizes(client):
    most = 8 << 20
    await call(client, "write_file", path="large", content="x" * most)
    await fails(client, "write_file", "at most 8388608", path="large", content="x" * (most + 1))
    await refused(-32600, client.call_tool("write_file", {"path": "x", "content": "x" * (17 << 20)}))
    await fails(client, "read_file", "between 1 and 1048576", path="large", length=(1 << 20) + 1)
    part = await text(client, "read_file", path="large", offset=most - 5)
    same(part, "xxxxx", "the end of a file")
    await refused(-32602, client.read_resource("acetate:///large"))
    await fails(client, "kv_set", "more than 1048576", key="k", value="v" * (1 << 20))
    await call(client, "remove", path="large")


async def write_many(name):
    async with Client(server("--allow-changes")) as client:
        for number in range(5):
            await call(client, "write_file", path=f"{name}-{number}", content=name)


async def two_at_once():
    await asyncio.gather(write_many("one"), write_many("two"))
    async with Client(server()) as client:
        names = [entry["name"] for entry in (await call(client, "readdir"))["entries"]]
        same(len(names), 11, f"what two clients wrote: {names}")
        await fails(client, "remove", "this server only reads", path="one-0")
        same([tool.name for tool in (await client.list_tools()).tools], READING, "without changes")
    async with Client(server("--allow-changes", "--tools", "stat,remove")) as client:
        same([tool.name for tool in (await client.list_tools()).tools], ["stat", "remove"], "two tools")
        await fails(client, "read_file", "not one of the tools", path="one-0")
        for name in names:
            if name != "src":
                await call(client, "remove", path=name)


async def main():
    # With the handshake of the protocol's earlier versions, and without it.
    for mode in ["legacy", "auto"]:
        async with Client(server("--allow-changes"), mode=mode) as client:
            await every_tool(client)
            await every_error(client)
            await sizes(client)
    await two_at_once()


asyncio.run(main())
