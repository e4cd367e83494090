//! RPC headers: what is read is what was written, and every refusal can be sent.

use acetate::wire::rpc::{Call, CallRejection, Credential, MAX_GIDS, RpcStatus, parse_success};
use bytes::Bytes;

const REPLY: [u8; 4] = [0, 0, 0, 1];

pub fn check(data: &[u8]) {
    let record = Bytes::copy_from_slice(data);
    match Call::parse(record.clone()) {
        Ok(call) => sound(&call, data),
        Err(CallRejection::Answer(xid, status)) => refusal(xid, status, data),
        Err(CallRejection::NotACall) => assert_eq!(data[4..8], REPLY),
        Err(CallRejection::Garbage) => {
            assert!(data.len() < 8 || u32::from_be_bytes(data[4..8].try_into().unwrap()) > 1);
        }
    }
    let xid = data.first_chunk().map_or(0, |xid| u32::from_be_bytes(*xid));
    if let Ok(results) = parse_success(record, xid) {
        assert!(data.ends_with(&results) && data[4..8] == REPLY);
    }
}

fn sound(call: &Call, data: &[u8]) {
    assert!(data.ends_with(&call.args));
    let head = data.len() - call.args.len();
    match &call.credential {
        Credential::Sys(sys) => {
            assert!(sys.gids.len() <= MAX_GIDS);
            // Behind the length of the credential: stamp, machine, uid, gid, groups.
            let machine = u32::from_be_bytes(data[36..40].try_into().unwrap()) as usize;
            let ids = 40 + machine.next_multiple_of(4);
            let mut words = vec![sys.uid, sys.gid, sys.gids.len() as u32];
            words.extend(&sys.gids);
            let words: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
            assert_eq!(data[ids..ids + words.len()], words);
            assert_eq!(head, ids + words.len() + 8);
        }
        Credential::None => {
            let Call { xid, program, version, procedure, .. } = *call;
            let header = Call::encode_header(xid, program, version, procedure).into_bytes();
            assert_eq!(header, data[..head]);
        }
    }
}

fn refusal(xid: u32, status: RpcStatus, data: &[u8]) {
    assert_eq!(xid.to_be_bytes(), data[..4]);
    let reply = status.encode_header(xid).into_bytes();
    assert!(reply.len().is_multiple_of(4) && reply[4..8] == REPLY);
    assert!(parse_success(reply, xid).is_err());
}
