"""Clients that change a session all the time, and remember what was answered."""

import os
import random
import struct
import threading
import time

from nfs import EXIST, OK, RMDIR, STALE, Client

# A lane removes files from so many on.
MAX_FILES = 40
MAX_BYTES = 70_000


class File:
    """What a name leads to."""

    def __init__(self, handle, kind):
        self.handle, self.kind, self.content = handle, kind, b""


class Worker(threading.Thread):
    """A thread that works in steps, between which it can be held."""

    def __init__(self, load):
        super().__init__(daemon=True)
        self.load = load
        self.client = Client(load.place)
        self.held = threading.Event()
        self.steps = 0

    def run(self):
        try:
            while not self.load.is_over:
                if self.load.is_held:
                    self.held.set()
                    time.sleep(0.005)
                    continue
                self.held.clear()
                self.step()
                self.steps += 1
        except BaseException as error:  # noqa: BLE001  whatever it is, it fails the run
            self.load.failed(f"{self.name}: {type(error).__name__}: {error}")
        finally:
            self.held.set()


class Lane(Worker):
    """Changes of all kinds in a directory of its own, one after another."""

    def __init__(self, load, index, seed):
        super().__init__(load)
        self.name = f"lane{index}"
        self.random = random.Random(seed * 100 + index)
        self.folder = self.client.mkdir(load.root, self.name.encode())
        self.files, self.removed = {}, []
        # (procedure, path, path2) of each answered change that must not be made twice.
        self.made = []
        self.count = self.contest = 0

    def name_new(self, kind):
        self.count += 1
        return f"{kind}{self.count}".encode()

    def note(self, procedure, name, name2=None):
        path = lambda each: each and f"/{self.name}/{each.decode()}"  # noqa: E731
        self.made.append((procedure, path(name), path(name2)))

    def choose(self, *kinds):
        found = [name for name, file in self.files.items() if file.kind in kinds]
        return self.random.choice(found) if found else None

    def step(self):
        number = self.random.randrange(20)
        if len(self.files) > MAX_FILES or number < 2 and self.files:
            self.remove(self.random.choice(list(self.files)))
        elif number < 5:
            self.create()
        elif number < 7:
            name, client = self.name_new("d"), self.client
            self.files[name] = File(client.mkdir(self.folder, name), "d")
            self.note("MKDIR", name)
        elif number < 8:
            name, target = self.name_new("s"), b"over there"
            self.files[name] = File(self.client.symlink(self.folder, name, target), "s")
            self.note("SYMLINK", name)
        elif number < 11:
            self.rename()
        elif number < 12:
            self.compete()
        else:
            self.change_content(number)

    def create(self):
        name, client = self.name_new("f"), self.client
        if self.random.random() < 0.5:
            handle = client.create_exclusive(self.folder, name, os.urandom(8))
        else:
            handle = client.create_guarded(self.folder, name)
        self.files[name] = File(handle, "f")
        self.note("CREATE", name)

    def remove(self, name):
        file = self.files[name]
        directory = file.kind == "d"
        self.client.remove(self.folder, name, *([RMDIR] if directory else []))
        del self.files[name]
        if all(other is not file for other in self.files.values()):
            self.removed = [*self.removed[-9:], file.handle]
        self.note("RMDIR" if directory else "REMOVE", name)

    def rename(self):
        name = self.choose("f", "d", "s")
        if not name:
            return
        new = self.name_new("n")
        if self.files[name].kind == "f" and self.random.random() < 0.3:
            self.client.link(self.files[name].handle, self.folder, new)
            self.files[new] = self.files[name]
            # The log may name the file by any of its names.
            self.note("LINK", None, new)
        else:
            self.client.rename(self.folder, name, new)
            self.files[new] = self.files.pop(name)
            self.note("RENAME", name, new)

    def compete(self):
        """Makes what all lanes try to make: one of them may."""
        self.contest += 1
        client, shared = self.client, self.load.shared
        name = f"file{self.contest}".encode()
        won = client.create_exclusive(shared, name, os.urandom(8), may=(EXIST,))
        self.load.note_contest(name, won is not None)
        name = f"dir{self.contest}".encode()
        won = client.mkdir(shared, name, may=(EXIST,))
        self.load.note_contest(name, won is not None)

    def change_content(self, number):
        name = self.choose("f")
        if not name:
            return
        file = self.files[name]
        if number == 12:
            size = self.random.randrange(MAX_BYTES)
            self.client.truncate(file.handle, size)
            file.content = file.content[:size].ljust(size, b"\0")
        elif number < 15:
            self.check_content(name)
        else:
            most = self.random.choice([20, 3000, 20_000])
            offset = self.random.randrange(MAX_BYTES - most)
            data = self.random.randbytes(self.random.randrange(1, most))
            self.client.write(file.handle, offset, data)
            content = file.content.ljust(offset, b"\0")
            file.content = content[:offset] + data + content[offset + len(data) :]

    def check_content(self, name):
        found, expected = self.client.read(self.files[name].handle), self.files[name].content
        assert found == expected, f"{name}: {len(found)} bytes, not {len(expected)}, or others"

    def verify(self):
        """All that was answered is there, by name and by the handles from before."""
        names = self.client.names(self.folder)
        assert names == set(self.files), f"{self.name}: names {names ^ set(self.files)}"
        for name, file in self.files.items():
            found = self.client.lookup(self.folder, name)
            assert found == file.handle, f"{self.name}/{name}: another handle"
            self.client.getattr(file.handle)
            if file.kind == "f":
                self.check_content(name)
        for handle in self.removed:
            assert self.client.getattr(handle, may=(STALE,)) == STALE, "a removed file is there"


class Counter(Worker):
    """Counts in a file, while another connection reads: what it reads never goes back."""

    def __init__(self, load):
        super().__init__(load)
        self.name = "counter"
        self.file = self.client.create_guarded(load.root, b"counter")
        self.client.write(self.file, 0, struct.pack(">Q", 0))
        self.value = self.answered = 0

    def step(self):
        self.value += 1
        self.client.write(self.file, 0, struct.pack(">Q", self.value))
        self.answered = self.value

    def verify(self):
        found = struct.unpack(">Q", self.client.read(self.file))[0]
        assert found == self.value, f"the counter is {found}, not {self.value}"


class Reader(Worker):
    """Reads the counter."""

    def __init__(self, load, counter):
        super().__init__(load)
        self.name = "reader"
        self.counter, self.last = counter, 0

    def step(self):
        least = max(self.last, self.counter.answered)
        found = struct.unpack(">Q", self.client.read(self.counter.file))[0]
        assert found >= least, f"the counter went back from {least} to {found}"
        self.last = found
        time.sleep(0.005)

    def verify(self):
        pass


class Load:
    """All workers of a session."""

    def __init__(self, place, seed, lanes=4):
        self.place = place
        self.is_over = self.is_held = False
        self.failure = None
        self.lock = threading.Lock()
        # Name in the shared directory: how many made it, and how many tried.
        self.contests = {}
        client = Client(place)
        self.root = client.mount()
        self.shared = client.mkdir(self.root, b"shared")
        client.close()
        self.lanes = [Lane(self, index, seed) for index in range(lanes)]
        counter = Counter(self)
        self.workers = [*self.lanes, counter, Reader(self, counter)]
        for worker in self.workers:
            worker.start()

    def failed(self, what):
        with self.lock:
            self.failure = self.failure or what

    def check(self):
        if self.failure:
            raise AssertionError(self.failure)

    def note_contest(self, name, won):
        with self.lock:
            made, tried = self.contests.get(name, (0, 0))
            self.contests[name] = (made + won, tried + 1)

    def progress(self, steps=3, timeout=60):
        """Waits until each worker has made some steps."""
        goal = [(worker, worker.steps + steps) for worker in self.workers]
        end = time.monotonic() + timeout
        while any(worker.steps < least for worker, least in goal):
            self.check()
            assert time.monotonic() < end, "the clients do not get on"
            time.sleep(0.01)

    def hold(self):
        """Stops all workers between two steps."""
        self.is_held = True
        for worker in self.workers:
            assert worker.held.wait(90), f"{worker.name} hangs"
        self.check()

    def go_on(self):
        for worker in self.workers:
            worker.held.clear()
        self.is_held = False

    def verify(self):
        """Checks all that was answered; the workers are held."""
        for worker in self.workers:
            worker.verify()
        for name, (made, tried) in self.contests.items():
            assert made == 1 or made == 0 and tried == 0, f"{name}: made {made} times by {tried}"

    def stall(self, since):
        """The longest that a call took which was answered after `since`, in seconds."""
        spans = [span for worker in self.workers for span in worker.client.times[-2000:]]
        return max((end - begun for begun, end in spans if end > since), default=0.0)

    def made(self):
        return [each for lane in self.lanes for each in lane.made]

    def end(self):
        self.is_over = True
        for worker in self.workers:
            worker.join(90)
            worker.client.close()

    def told(self):
        clients = [worker.client for worker in self.workers]
        calls = sum(len(client.times) for client in clients)
        jukeboxes = sum(client.jukeboxes for client in clients)
        resent = sum(client.resent for client in clients)
        return f"{calls} calls, {resent} sent again, {jukeboxes} JUKEBOX"


assert OK == 0
