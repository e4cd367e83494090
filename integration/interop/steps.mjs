// What the TypeScript SDK of AgentFS does with a session. Usage: node steps.mjs STEP SESSION

import assert from 'node:assert/strict';
import { AgentFS } from 'agentfs-sdk';

const steps = {
    async 'read-ours'(agent) {
        const { fs } = agent;
        assert.equal(await fs.readFile('/moved/file', 'utf8'), 'of the base\n');
        assert.equal(await fs.readFile('/moved/deep/file', 'utf8'), 'deep\n');
        assert.equal(await fs.readFile('/keep/two', 'utf8'), 'Linked\n');
        const sparse = Buffer.alloc(300_000);
        sparse.write('begin', 0);
        sparse.write('ended', 299_995);
        assert.ok(sparse.equals(await fs.readFile('/sparse')));
        assert.deepEqual((await fs.readdir('/moved')).sort(), ['deep', 'file']);
        assert.equal((await fs.stat('/sparse')).size, 300_000);
        assert.deepEqual(await agent.kv.get('from:us'), { n: 1 });
        const [call] = await agent.tools.getByName('build');
        assert.deepEqual([call.status, call.parameters, call.result], ['success', { a: 1 }, 'ok']);
    },

    async 'write-ours'(agent) {
        await agent.fs.writeFile('/by/typescript.txt', 'by typescript');
        await agent.fs.writeFile('/moved/file', 'changed by typescript');
        await agent.fs.unlink('/moved/deep/file');
        await agent.kv.set('from:typescript', [1, 2, 3]);
        const call = await agent.tools.start('search', { query: 'interop' });
        await agent.tools.success(call, { found: 2 });
    },

    async 'make-theirs'(agent) {
        await agent.fs.writeFile('/data/notes.txt', 'Hello');
        await agent.fs.writeFile('/data/large.bin', Buffer.alloc(100_000, 'x'));
        await agent.fs.writeFile('/data/gone.txt', 'gone');
        await agent.fs.unlink('/data/gone.txt');
        await agent.fs.mkdir('/empty');
        await agent.kv.set('config', { debug: true });
        const call = await agent.tools.start('search', { query: 'interop' });
        await agent.tools.error(call, 'no network');
    },

    async 'read-theirs'(agent) {
        assert.equal(await agent.fs.readFile('/data/notes.txt', 'utf8'), 'Hello');
        assert.equal(await agent.fs.readFile('/data/again', 'utf8'), 'again');
        assert.deepEqual(await agent.kv.get('config'), { debug: true });
    },
};

const [step, session] = process.argv.slice(2);
const agent = await AgentFS.open({ path: session });
try {
    await steps[step](agent);
} finally {
    await agent.close();
}
