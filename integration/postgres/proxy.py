"""A TCP proxy between a server and its database: it delays, cuts and holds back what it forwards.

Each direction keeps its order.
"""

import asyncio
import threading

READ_BYTES = 65536

TO_DATABASE, TO_SERVER = 0, 1


class Proxy:
    """Forwards connections from `port` to the database, in a thread of its own."""

    def __init__(self, database_port):
        self.database_port = database_port
        # Seconds that each piece waits.
        self.delay = 0.0
        # Nothing passes, and nothing is refused.
        self.is_partitioned = False
        # By direction: connections end after so many more bytes; None: they do not.
        self.cut_after = [None, None]
        self.cuts = 0
        # Connections of earlier generations lead nowhere, and do not end.
        self.generation = 0
        self._writers = set()
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self._run, args=(ready,), daemon=True).start()
        ready.wait()

    def cut(self):
        """Ends all connections."""
        self._loop.call_soon_threadsafe(self._cut)

    def vanish(self):
        """From now on nothing is heard of the database that connections lead to; others lead to
        another one."""
        self.generation += 1

    def _run(self, ready):
        async def begin():
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1000)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()

        self._loop.run_until_complete(begin())
        self._loop.run_forever()

    def _cut(self):
        self.cuts += bool(self._writers)
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader, writer):
        ends = {writer}
        self._writers.add(writer)
        try:
            database = await asyncio.open_connection("127.0.0.1", self.database_port)
            ends.add(database[1])
            self._writers.add(database[1])
            await asyncio.gather(
                self._forward(reader, database[1], TO_DATABASE),
                self._forward(database[0], writer, TO_SERVER),
            )
        except OSError:
            pass
        finally:
            for end in ends:
                end.transport.abort()
            self._writers -= ends

    async def _forward(self, reader, writer, direction):
        generation = self.generation
        while data := await reader.read(READ_BYTES):
            if self.delay:
                await asyncio.sleep(self.delay)
            while self.is_partitioned:
                await asyncio.sleep(0.01)
            if generation != self.generation:
                continue
            limit = self.cut_after[direction]
            if limit is not None:
                self.cut_after[direction] = None if len(data) >= limit else limit - len(data)
                if len(data) >= limit:
                    writer.write(data[:limit])
                    await writer.drain()
                    # What was written leaves first.
                    await asyncio.sleep(0.005)
                    self._cut()
                    return
            writer.write(data)
            await writer.drain()
        # One end is gone: the other one learns of it.
        raise ConnectionResetError
