// `acetate mcp` with the official TypeScript client: every tool, every error, sizes over the limit,
// two clients at once.
//
// Usage: mcp_client.mjs ACETATE SESSION, of a session over a base with /src/a ("of the base") alone.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [command, session] = process.argv.slice(2);
const reading = 'read_file readdir stat search diff log checkpoint_list kv_get kv_list'.split(' ');
const changing =
  'write_file mkdir remove rename checkpoint_create restore kv_set kv_delete'.split(' ');

function same(found, expected, what) {
  const [a, b] = [found, expected].map((value) => JSON.stringify(value));
  if (a !== b) {
    console.error(`${what}\n  expected: ${b}\n  found:    ${a}`);
    process.exit(1);
  }
}

async function connect(...options) {
  const client = new Client({ name: 'interop', version: '1' });
  const args = ['mcp', session, ...options];
  await client.connect(new StdioClientTransport({ command, args }));
  return client;
}

async function result(client, name, args, isError) {
  const result = await client.callTool({ name, arguments: args });
  const told = JSON.stringify(result.content);
  same(result.isError, isError, `${name} ${JSON.stringify(args).slice(0, 100)}: ${told}`);
  return result;
}

const call = async (client, name, args = {}) =>
  (await result(client, name, args, false)).structuredContent;
const text = async (client, name, args) =>
  (await result(client, name, args, false)).content.map((block) => block.text).join('');
async function fails(client, name, expected, args) {
  const told = (await result(client, name, args, true)).content[0].text;
  same(told.includes(expected), true, `${name}: ${told}`);
}
async function refused(code, request) {
  const error = await request.then(() => ({ code: 'not refused' }), (error) => error);
  same(error.code, code, String(error));
}

async function everyTool(client) {
  const names = (await client.listTools()).tools.map((tool) => tool.name);
  same(names, [...reading, ...changing], 'the tools');
  same(await text(client, 'read_file', { path: 'src/a' }), 'of the base', 'a file of the base');
  const written = await call(client, 'write_file', { path: 'src/a', content: 'changed é\n' });
  same(written.bytes, 11, 'what is written');
  const before = String(written.checkpoint);
  await call(client, 'mkdir', { path: 'd/e', parents: true });
  await call(client, 'rename', { from: 'src/a', to: 'd/e/b' });
  const listed = await call(client, 'readdir', { path: 'd/e' });
  same(listed.entries.map((entry) => entry.name), ['b'], 'a directory');
  same((await call(client, 'stat', { path: 'd/e/b' })).size, 11, 'a size');
  const found = await call(client, 'search', { pattern: 'chang.d' });
  same(found.matches.map((one) => one.path), ['/d/e/b'], 'a search');
  same((await call(client, 'diff', { from: before })).changes > 0, true, 'a diff');
  const patch = await text(client, 'diff', { from: before, patch: true });
  same(patch.includes('+changed é'), true, `a patch: ${patch}`);
  await call(client, 'checkpoint_create', { labels: { by: 'typescript' } });
  const { checkpoints } = await call(client, 'checkpoint_list');
  same(checkpoints.at(-1).labels, { by: 'typescript' }, 'a checkpoint');
  await call(client, 'remove', { path: 'd', recursive: true });
  const { changes } = await call(client, 'log', { limit: 1 });
  same(changes[0].path.startsWith('/d'), true, 'the log');
  const restored = await call(client, 'restore', { checkpoint: before });
  same(String(restored.restored), before, 'a restore');
  same(await text(client, 'read_file', { path: 'src/a' }), 'of the base', 'what came back');
  await call(client, 'kv_set', { key: 'k', value: { n: [1.5, null] } });
  same((await call(client, 'kv_get', { key: 'k' })).value, { n: [1.5, null] }, 'a value');
  same((await call(client, 'kv_list')).keys.map((one) => one.key), ['k'], 'keys');
  await call(client, 'kv_delete', { key: 'k' });
  const blob = Buffer.from(Array.from({ length: 256 }, (_, n) => n)).toString('base64');
  await call(client, 'write_file', { path: 'bin', content: blob, encoding: 'base64' });
  same(await text(client, 'read_file', { path: 'bin', encoding: 'base64' }), blob, 'bytes');
  const { resources } = await client.listResources();
  same(resources.map((one) => one.name), ['/bin', '/src/a'], 'resources');
  const [bin, a] = await Promise.all(resources.map(({ uri }) => client.readResource({ uri })));
  same(a.contents[0].text, 'of the base', 'a text as a resource');
  same(bin.contents[0].blob, blob, 'bytes as a resource');
  same((await client.listResourceTemplates()).resourceTemplates.length, 1, 'templates');
  await call(client, 'remove', { path: 'bin' });
}

async function everyError(client) {
  await fails(client, 'read_file', '/no: no such file', { path: 'no' });
  await fails(client, 'readdir', 'not a directory', { path: 'src/a' });
  await fails(client, 'stat', 'no such file', { path: 'src/no' });
  await fails(client, 'search', 'not a regular expression', { pattern: '(' });
  await fails(client, 'diff', 'no such checkpoint', { from: 'never' });
  await fails(client, 'log', 'no such checkpoint', { since_checkpoint: 'never' });
  await fails(client, 'checkpoint_list', 'between 1 and', { limit: 1001 });
  await fails(client, 'kv_get', 'no such key', { key: 'no' });
  await fails(client, 'kv_list', 'unknown field', { no: 1 });
  await fails(client, 'write_file', '/no: no such file', { path: 'no/a', content: '' });
  await fails(client, 'mkdir', '"parents": true', { path: 'no/a' });
  await fails(client, 'remove', '"recursive": true', { path: 'src' });
  await fails(client, 'rename', 'no such file', { from: 'no', to: 'a' });
  await fails(client, 'checkpoint_create', 'looks like an id', { name: '12' });
  await fails(client, 'restore', 'no such checkpoint', { checkpoint: 'never' });
  await fails(client, 'kv_set', 'missing field `value`', { key: 'k' });
  await fails(client, 'kv_delete', 'no such key', { key: 'no' });
  await refused(-32602, client.callTool({ name: 'unknown', arguments: {} }));
  await refused(-32002, client.readResource({ uri: 'acetate:///no' }));
}

async function sizes(client) {
  const [most, path] = [8 << 20, 'large'];
  await call(client, 'write_file', { path, content: 'x'.repeat(most) });
  const over = { path, content: 'x'.repeat(most + 1) };
  await fails(client, 'write_file', 'at most 8388608', over);
  const far = { path, content: 'x'.repeat(17 << 20) };
  await refused(-32600, client.callTool({ name: 'write_file', arguments: far }));
  await fails(client, 'read_file', 'between 1 and 1048576', { path, length: (1 << 20) + 1 });
  same(await text(client, 'read_file', { path, offset: most - 5 }), 'xxxxx', 'the end of a file');
  await refused(-32602, client.readResource({ uri: 'acetate:///large' }));
  await fails(client, 'kv_set', 'more than 1048576', { key: 'k', value: 'v'.repeat(1 << 20) });
  await call(client, 'remove', { path });
}

async function writeMany(name) {
  const client = await connect('--allow-changes');
  for (let number = 0; number < 5; number++) {
    await call(client, 'write_file', { path: `${name}-${number}`, content: name });
  }
  await client.close();
}

async function twoAtOnce() {
  await Promise.all([writeMany('one'), writeMany('two')]);
  const reader = await connect();
  const names = (await call(reader, 'readdir')).entries.map((entry) => entry.name);
  same(names.length, 11, `what two clients wrote: ${names}`);
  await fails(reader, 'remove', 'this server only reads', { path: 'one-0' });
  same((await reader.listTools()).tools.map((tool) => tool.name), reading, 'without changes');
  await reader.close();
  const client = await connect('--allow-changes', '--tools', 'stat,remove');
  same((await client.listTools()).tools.map((tool) => tool.name), ['stat', 'remove'], 'two tools');
  await fails(client, 'read_file', 'not one of the tools', { path: 'one-0' });
  for (const path of names.filter((name) => name !== 'src')) await call(client, 'remove', { path });
  await client.close();
}

const client = await connect('--allow-changes');
await everyTool(client);
await everyError(client);
await sizes(client);
await client.close();
await twoAtOnce();
