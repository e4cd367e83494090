//! What identifies a session, read without opening it.

use acetate::delta::Store;
use acetate::delta::sqlite::{SessionIdentity, identity_at_rest};

use super::Place;

#[test]
fn it_is_what_the_open_session_has() {
    let place = Place::new();
    let session = place.create();
    let (id, handle_key) = (session.id().to_owned(), session.handle_key());
    drop(session);
    let identity = SessionIdentity { id, handle_key };
    assert_eq!(identity_at_rest(&place.path), Some(identity));
    assert_eq!(place.names(), ["session.db"]);
}

#[test]
fn a_session_with_a_log_is_to_be_opened() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    writer.begin(true).unwrap();
    writer.commit().unwrap();
    assert_eq!(identity_at_rest(&place.path), None);
    writer.close().unwrap();
    drop((writer, session));
    assert!(identity_at_rest(&place.path).is_some());
}

#[test]
fn what_is_missing_or_unknown_is_to_be_opened() {
    for change in [
        "DELETE FROM acetate_meta WHERE key = 'handle_key'",
        "UPDATE acetate_meta SET value = x'00' WHERE key = 'handle_key'",
        "DELETE FROM acetate_meta WHERE key = 'session_id'",
        "UPDATE acetate_meta SET value = 99 WHERE key = 'format_version'",
        "UPDATE fs_config SET value = '0.9' WHERE key = 'schema_version'",
        "DROP TABLE acetate_meta",
    ] {
        let place = Place::new();
        drop(place.create());
        place.sql().execute_batch(change).unwrap();
        assert_eq!(identity_at_rest(&place.path), None, "{change}");
    }
}

#[test]
fn a_file_that_is_cut_or_no_session_is_to_be_opened() {
    let place = Place::new();
    assert_eq!(identity_at_rest(&place.path), None);
    drop(place.create());
    let content = std::fs::read(&place.path).unwrap();
    std::fs::write(&place.path, &content[..content.len() - 1]).unwrap();
    assert_eq!(identity_at_rest(&place.path), None);
    std::fs::write(&place.path, "no database").unwrap();
    assert_eq!(identity_at_rest(&place.path), None);
    std::fs::write(&place.path, content).unwrap();
    assert!(identity_at_rest(&place.path).is_some());
}
