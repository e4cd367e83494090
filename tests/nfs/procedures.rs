//! What each procedure asks and answers, by the [`golden`](super::golden) cases.

use acetate::nfs::CallError;
use acetate::vfs::FsError;
use proptest::prelude::*;

use super::golden::{cases, filesystem};
use super::{Server, wire};
use crate::support::hex::to_hex;

#[tokio::test]
async fn success() {
    let server = Server::new(filesystem(None));
    for case in cases() {
        let reply = server.ask(case.procedure, case.args).await;
        let name = format!("procedure {}: {}", case.procedure, case.call);
        assert_eq!(server.vfs.take_calls(), [case.call], "{name}");
        assert_eq!(to_hex(&reply), to_hex(&wire(case.ok)), "{name}");
    }
}

#[tokio::test]
async fn failure_carries_attributes() {
    let server = Server::new(filesystem(Some(FsError::ReadOnly)));
    for case in cases() {
        let reply = server.ask(case.procedure, case.args).await;
        assert_eq!(to_hex(&reply), to_hex(&wire(case.failed)), "{}", case.call);
    }
}

#[tokio::test]
async fn cases_cover_every_procedure() {
    let covered: std::collections::BTreeSet<u32> =
        cases().iter().map(|case| case.procedure).collect();
    assert_eq!(covered, (1..=21).collect());
}

#[tokio::test]
async fn null_takes_and_gives_nothing() {
    let server = Server::new(filesystem(None));
    assert_eq!(server.call(0, vec![]).await, Ok(vec![]));
    assert!(matches!(server.call(0, vec![0; 4]).await, Err(CallError::GarbageArgs(_))));
}

#[tokio::test]
async fn truncated_arguments_are_garbage() {
    let server = Server::new(filesystem(None));
    for case in cases() {
        let args = wire(case.args);
        for length in 0..args.len() {
            let result = server.call(case.procedure, args[..length].to_vec()).await;
            assert!(
                matches!(result, Err(CallError::GarbageArgs(_))),
                "{} cut to {length} bytes: {result:?}",
                case.call
            );
        }
    }
    assert_eq!(server.vfs.take_calls(), [""; 0]);
}

#[tokio::test]
async fn over_long_arguments_are_garbage() {
    let server = Server::new(filesystem(None));
    for case in cases() {
        for extra in [1, 4] {
            let mut args = wire(case.args);
            args.extend(vec![0; extra]);
            let result = server.call(case.procedure, args).await;
            assert!(matches!(result, Err(CallError::GarbageArgs(_))), "{}", case.call);
        }
    }
    assert_eq!(server.vfs.take_calls(), [""; 0]);
}

#[tokio::test]
async fn unknown_procedures_are_unavailable() {
    let server = Server::new(filesystem(None));
    for procedure in [22, 23, u32::MAX] {
        assert_eq!(server.call(procedure, vec![]).await, Err(CallError::ProcedureUnavailable));
    }
}

proptest! {
    /// Whatever the arguments, there is an answer, and no panic.
    #[test]
    fn any_bytes_are_answered(
        procedure in 0u32..24,
        words in prop::collection::vec(
            prop_oneof![0u32..8, Just(20), Just(u32::MAX), any::<u32>()], 0..40),
    ) {
        let args = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let server = Server::new(filesystem(None));
        if let Ok(reply) = runtime.block_on(server.call(procedure, args)) {
            prop_assert!(reply.len() >= 4 || procedure == 0);
        }
    }

    /// A byte changed anywhere in valid arguments gives an answer too.
    #[test]
    fn mutations_are_answered(
        case in 0..cases().len(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let case = &cases()[case];
        let mut args = wire(case.args);
        let at = at.index(args.len());
        args[at] = byte;
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let server = Server::new(filesystem(None));
        if let Ok(reply) = runtime.block_on(server.call(case.procedure, args)) {
            prop_assert!(reply.len() >= 4);
        }
    }
}
