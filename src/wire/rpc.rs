//! ONC RPC version 2: call and reply headers, AUTH_NONE and AUTH_SYS (RFC 5531).

use bytes::Bytes;

use super::xdr::{Decoder, Encoder, XdrError};

/// The version of the RPC protocol.
pub const RPC_VERSION: u32 = 2;
/// Upper bound of the body of a credential or verifier, in bytes (RFC 5531 §8.2).
pub const MAX_AUTH_BYTES: usize = 400;
/// Upper bound of the machine name in AUTH_SYS, in bytes (RFC 5531 appendix A).
pub const MAX_MACHINE_NAME_BYTES: usize = 255;
/// Upper bound of the further groups in AUTH_SYS (RFC 5531 appendix A).
pub const MAX_GIDS: usize = 16;

/// The procedure of every program that does nothing and needs no credentials.
pub const PROC_NULL: u32 = 0;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;

/// The credentials of a call, not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// AUTH_NONE: anonymous.
    None,
    /// AUTH_SYS: a user of a client machine.
    Sys(AuthSys),
}

/// The body of an AUTH_SYS credential (RFC 5531 appendix A), without stamp and machine name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthSys {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Further groups, at most [`MAX_GIDS`].
    pub gids: Vec<u32>,
}

/// A call with a valid header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Identifies the call; repeated in the reply.
    pub xid: u32,
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Procedure number.
    pub procedure: u32,
    /// The caller's credentials.
    pub credential: Credential,
    /// The procedure's arguments.
    pub args: Bytes,
}

/// Why a record is not a call to execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallRejection {
    /// Not an RPC message: the stream is garbage.
    Garbage,
    /// A reply, although this end makes no calls.
    NotACall,
    /// A call that is answered without its procedure: the xid and the status.
    Answer(u32, RpcStatus),
}

/// The status of a call (RFC 5531 §9), without its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RpcStatus {
    /// SUCCESS: the results follow.
    Success,
    /// PROG_UNAVAIL: the program does not exist.
    ProgramUnavailable,
    /// PROG_MISMATCH: the program exists only in other versions.
    ProgramMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// PROC_UNAVAIL: the program has no such procedure.
    ProcedureUnavailable,
    /// GARBAGE_ARGS: the arguments cannot be decoded.
    GarbageArgs,
    /// SYSTEM_ERR: a contained defect of the server, such as a panic.
    SystemError,
    /// RPC_MISMATCH: the call is not RPC version 2.
    RpcMismatch,
    /// AUTH_ERROR.
    AuthError(AuthStatus),
}

/// Why credentials are rejected (`auth_stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum AuthStatus {
    /// AUTH_BADCRED: the credential is malformed.
    BadCredential = 1,
    /// AUTH_BADVERF: the verifier is malformed.
    BadVerifier = 3,
    /// AUTH_TOOWEAK: the flavor or the source port is not accepted.
    TooWeak = 5,
}

impl Call {
    /// Decodes the header of the call in `record`.
    pub fn parse(record: Bytes) -> Result<Self, CallRejection> {
        let mut decoder = Decoder::new(record);
        let xid = decoder.u32().map_err(|_| CallRejection::Garbage)?;
        match decoder.u32() {
            Ok(CALL) => {}
            Ok(REPLY) => return Err(CallRejection::NotACall),
            _ => return Err(CallRejection::Garbage),
        }
        Self::parse_body(xid, decoder).map_err(|status| CallRejection::Answer(xid, status))
    }

    fn parse_body(xid: u32, mut decoder: Decoder) -> Result<Self, RpcStatus> {
        let truncated = |_: XdrError| RpcStatus::GarbageArgs;
        if decoder.u32().map_err(truncated)? != RPC_VERSION {
            return Err(RpcStatus::RpcMismatch);
        }
        let program = decoder.u32().map_err(truncated)?;
        let version = decoder.u32().map_err(truncated)?;
        let procedure = decoder.u32().map_err(truncated)?;
        let flavor = decoder.u32().map_err(truncated)?;
        let body = auth_body(&mut decoder, AuthStatus::BadCredential)?;
        let credential = match flavor {
            AUTH_NONE if body.is_empty() => Credential::None,
            AUTH_NONE => return Err(RpcStatus::AuthError(AuthStatus::BadCredential)),
            AUTH_SYS => Credential::Sys(
                AuthSys::parse(body)
                    .map_err(|_| RpcStatus::AuthError(AuthStatus::BadCredential))?,
            ),
            _ => return Err(RpcStatus::AuthError(AuthStatus::TooWeak)),
        };
        // Both flavors use an empty AUTH_NONE verifier (RFC 5531 §10.1, appendix A).
        let flavor = decoder.u32().map_err(truncated)?;
        let body = auth_body(&mut decoder, AuthStatus::BadVerifier)?;
        if flavor != AUTH_NONE || !body.is_empty() {
            return Err(RpcStatus::AuthError(AuthStatus::BadVerifier));
        }
        Ok(Self { xid, program, version, procedure, credential, args: decoder.rest() })
    }

    /// Encodes the header of a call with AUTH_NONE; its arguments follow.
    pub fn encode_header(xid: u32, program: u32, version: u32, procedure: u32) -> Encoder {
        let mut encoder = Encoder::new();
        for word in [xid, CALL, RPC_VERSION, program, version, procedure] {
            encoder.put_u32(word);
        }
        for _credential_then_verifier in 0..2 {
            encoder.put_u32(AUTH_NONE);
            encoder.put_opaque(&[]);
        }
        encoder
    }
}

impl AuthSys {
    fn parse(body: Bytes) -> Result<Self, XdrError> {
        let mut decoder = Decoder::new(body);
        let _stamp = decoder.u32()?;
        let _machine_name = decoder.opaque(MAX_MACHINE_NAME_BYTES)?;
        let uid = decoder.u32()?;
        let gid = decoder.u32()?;
        let count = decoder.u32()? as usize;
        if count > MAX_GIDS {
            return Err(XdrError::TooLong { limit: MAX_GIDS });
        }
        let gids = (0..count).map(|_| decoder.u32()).collect::<Result<_, _>>()?;
        decoder.finish()?;
        Ok(Self { uid, gid, gids })
    }
}

impl RpcStatus {
    /// Encodes the reply's header; after [`RpcStatus::Success`] the results follow.
    pub fn encode_header(self, xid: u32) -> Encoder {
        let mut encoder = Encoder::new();
        encoder.put_u32(xid);
        encoder.put_u32(REPLY);
        match self {
            Self::RpcMismatch => {
                for word in [MSG_DENIED, 0, RPC_VERSION, RPC_VERSION] {
                    encoder.put_u32(word);
                }
            }
            Self::AuthError(why) => {
                for word in [MSG_DENIED, 1, why as u32] {
                    encoder.put_u32(word);
                }
            }
            accepted => {
                encoder.put_u32(MSG_ACCEPTED);
                encoder.put_u32(AUTH_NONE);
                encoder.put_opaque(&[]);
                accepted.encode_accepted(&mut encoder);
            }
        }
        encoder
    }

    fn encode_accepted(self, encoder: &mut Encoder) {
        match self {
            Self::Success => encoder.put_u32(0),
            Self::ProgramUnavailable => encoder.put_u32(1),
            Self::ProgramMismatch { low, high } => {
                for word in [2, low, high] {
                    encoder.put_u32(word);
                }
            }
            Self::ProcedureUnavailable => encoder.put_u32(3),
            Self::GarbageArgs => encoder.put_u32(4),
            Self::SystemError | Self::RpcMismatch | Self::AuthError(_) => encoder.put_u32(5),
        }
    }
}

/// Returns the results in `record` if it is a successful reply to the call `xid`.
pub fn parse_success(record: Bytes, xid: u32) -> Result<Bytes, XdrError> {
    let mut decoder = Decoder::new(record);
    for expected in [xid, REPLY, MSG_ACCEPTED] {
        if decoder.u32()? != expected {
            return Err(XdrError::BadValue);
        }
    }
    let _verifier_flavor = decoder.u32()?;
    decoder.opaque(MAX_AUTH_BYTES)?;
    if decoder.u32()? != 0 {
        return Err(XdrError::BadValue);
    }
    Ok(decoder.rest())
}

/// Decodes the body of a credential or verifier. Too long is `why`; truncated is GARBAGE_ARGS.
fn auth_body(decoder: &mut Decoder, why: AuthStatus) -> Result<Bytes, RpcStatus> {
    decoder.opaque(MAX_AUTH_BYTES).map_err(|error| match error {
        XdrError::TooLong { .. } => RpcStatus::AuthError(why),
        _ => RpcStatus::GarbageArgs,
    })
}
