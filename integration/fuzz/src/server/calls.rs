//! Calls, with arguments that decode.

use crate::choices::Choices;

pub const NFS: u32 = 100_003;
pub const MOUNT: u32 = 100_005;
pub const NLM: u32 = 100_021;

/// Names that are in the base, names that are not, and names that are none.
const NAMES: [&[u8]; 16] = [
    b"a",
    b"b",
    b"dir",
    b"sub",
    b"file",
    b"link",
    b"out",
    b"up",
    b".",
    b"..",
    b"",
    b"a/b",
    b"nul\0",
    b"\xff\xfe",
    &[b'n'; 255],
    &[b'n'; 256],
];

/// What clients mount.
const PATHS: [&[u8]; 6] = [b"/", b"//", b"", b"/dir", b"/..", b"/../outside"];

#[derive(Debug)]
pub struct Call {
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    pub args: Vec<u8>,
}

/// A counted opaque or string.
pub fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = (bytes.len() as u32).to_be_bytes().to_vec();
    encoded.extend_from_slice(bytes);
    encoded.resize(encoded.len().next_multiple_of(4), 0);
    encoded
}

/// Arguments while they are put together.
struct Args<'a, 'b> {
    choices: &'a mut Choices<'b>,
    handles: &'a [Vec<u8>],
    bytes: Vec<u8>,
}

impl Args<'_, '_> {
    /// A handle that was given out; sometimes with damage.
    fn handle(&mut self) -> &mut Self {
        let choice = self.choices.byte();
        let mut handle = self.handles[usize::from(choice) % self.handles.len()].clone();
        match choice {
            0xf0..=0xf7 => {
                let at = self.choices.below(handle.len());
                handle[at] ^= 1 << (choice & 7);
            }
            0xf8..=0xfb => handle.truncate(self.choices.below(64)),
            0xfc.. => handle.resize(64, choice),
            _ => {}
        }
        self.bytes.extend(opaque(&handle));
        self
    }

    fn name(&mut self) -> &mut Self {
        let choice = self.choices.byte();
        let name = match choice {
            0xf8.. => self.choices.bytes(8),
            _ => NAMES[usize::from(choice) % NAMES.len()],
        };
        self.opaque(name)
    }

    fn opaque(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(opaque(bytes));
        self
    }

    fn word(&mut self, value: u32) -> &mut Self {
        self.bytes.extend(value.to_be_bytes());
        self
    }

    fn number32(&mut self) -> &mut Self {
        let value = self.choices.number32();
        self.word(value)
    }

    fn number(&mut self) -> &mut Self {
        let value = self.choices.number();
        self.bytes.extend(value.to_be_bytes());
        self
    }

    fn flag(&mut self) -> bool {
        let flag = self.choices.flag();
        self.word(flag.into());
        flag
    }

    fn sattr(&mut self) -> &mut Self {
        // Mode, uid, gid; size; atime, mtime.
        let which = self.choices.byte();
        for bit in 0..4 {
            let is_set = which >> bit & 1 == 1;
            self.word(is_set.into());
            match (is_set, bit) {
                (false, _) => {}
                (true, 3) => {
                    self.number();
                }
                (true, _) => {
                    self.number32();
                }
            }
        }
        for bits in [which >> 4 & 3, which >> 6 & 3] {
            let how = u32::from(bits) % 3;
            self.word(how);
            if how == 2 {
                self.number32().number32();
            }
        }
        self
    }

    fn lock(&mut self) -> &mut Self {
        self.opaque(b"client").handle();
        let owner = [self.choices.byte() & 3];
        self.opaque(&owner).number32().number().number()
    }
}

impl Call {
    /// A call of `procedure` with arguments that decode.
    pub fn choose(
        program: u32,
        procedure: u32,
        choices: &mut Choices<'_>,
        handles: &[Vec<u8>],
    ) -> Self {
        let mut args = Args { choices, handles, bytes: Vec::new() };
        let version = if program == NLM { 4 } else { 3 };
        match program {
            NFS => nfs(procedure, &mut args),
            MOUNT if procedure == 1 || procedure == 3 => {
                let path = PATHS[args.choices.below(PATHS.len())];
                args.opaque(path);
            }
            NLM => nlm(procedure, &mut args),
            _ => {}
        }
        Self { program, version, procedure, args: args.bytes }
    }

    /// The record: header with AUTH_SYS of the superuser, arguments.
    pub fn record(&self, xid: u32) -> Vec<u8> {
        let Self { program, version, procedure, .. } = *self;
        // Flavor and length; stamp, machine, uid, gid, no further groups; no verifier.
        let auth = [1, 20, 0, 0, 0, 0, 0, 0, 0];
        let words = [xid, 0, 2, program, version, procedure].into_iter().chain(auth);
        words.flat_map(u32::to_be_bytes).chain(self.args.iter().copied()).collect()
    }
}

fn nfs(procedure: u32, args: &mut Args<'_, '_>) {
    match procedure {
        0 => {}
        2 => {
            args.handle().sattr();
            if args.flag() {
                args.number32().number32();
            }
        }
        3 | 12 | 13 => drop(args.handle().name().bytes.len()),
        4 => drop(args.handle().number32().bytes.len()),
        6 => drop(args.handle().number().number32().bytes.len()),
        7 => write(args),
        8 => {
            args.handle().name();
            let how = args.choices.byte() % 3;
            args.word(how.into());
            match how {
                2 => drop(args.number().bytes.len()),
                _ => drop(args.sattr().bytes.len()),
            }
        }
        9 => drop(args.handle().name().sattr().bytes.len()),
        10 => drop(args.handle().name().sattr().name().bytes.len()),
        11 => {
            args.handle().name();
            let kind = args.choices.byte() % 7 + 1;
            args.word(kind.into());
            if matches!(kind, 3 | 4 | 6 | 7) {
                args.sattr();
            }
            if matches!(kind, 3 | 4) {
                args.number32().number32();
            }
        }
        14 => drop(args.handle().name().handle().name().bytes.len()),
        15 => drop(args.handle().handle().name().bytes.len()),
        16 => drop(args.handle().number().word(0).word(0).number32().bytes.len()),
        17 => drop(args.handle().number().word(0).word(0).number32().number32().bytes.len()),
        21 => drop(args.handle().number().number32().bytes.len()),
        // GETATTR, READLINK, FSSTAT, FSINFO, PATHCONF.
        _ => drop(args.handle().bytes.len()),
    }
}

fn write(args: &mut Args<'_, '_>) {
    args.handle().number();
    let data = vec![b'w'; usize::try_from(args.choices.number()).unwrap_or(0).min(70_000)];
    let counted = data.len() as u32 + u32::from(args.choices.byte() == 0xff);
    args.word(counted);
    let stable = args.choices.byte() % 3;
    args.word(stable.into()).opaque(&data);
}

fn nlm(procedure: u32, args: &mut Args<'_, '_>) {
    if procedure == 0 {
        return;
    }
    if procedure == 23 {
        args.opaque(b"client").word(1);
        return;
    }
    args.opaque(b"cookie");
    match procedure {
        1 => {
            args.flag();
            args.lock();
        }
        2 | 22 => {
            // Nobody waits: that would take seconds.
            args.word(0);
            args.flag();
            args.lock().word(0).number32();
        }
        3 => {
            args.word(0);
            args.flag();
            args.lock();
        }
        4 => drop(args.lock().bytes.len()),
        // SHARE, UNSHARE.
        _ => drop(args.opaque(b"client").handle().opaque(b"o").word(0).word(0).word(0)),
    }
}
