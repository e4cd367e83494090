//! Arguments of NLM calls of the client `client`, each for the whole of a file.

use acetate::wire::xdr::Encoder;

pub const LOCK: u32 = 2;
pub const UNLOCK: u32 = 4;

/// An exclusive LOCK by the process `svid`, not to be reclaimed.
pub fn lock_args(block: bool, file: &[u8], svid: u32, state: u32) -> Encoder {
    let mut args = Encoder::new();
    args.put_opaque(b"");
    args.put_bool(block);
    args.put_bool(true);
    put_lock(&mut args, file, svid);
    args.put_bool(false);
    args.put_u32(state);
    args
}

/// The UNLOCK of that.
pub fn unlock_args(file: &[u8], svid: u32) -> Encoder {
    let mut args = Encoder::new();
    args.put_opaque(b"");
    put_lock(&mut args, file, svid);
    args
}

fn put_lock(args: &mut Encoder, file: &[u8], svid: u32) {
    args.put_opaque(b"client");
    args.put_opaque(file);
    args.put_opaque(b"owner");
    args.put_u32(svid);
    args.put_u64(0);
    args.put_u64(0);
}
