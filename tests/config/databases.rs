//! Sessions in databases.

use acetate::config::{Missing, StoreConfig};

use super::{Folder, export, fault};

const URL: &str = "postgres://me@db.example/agents/chats/one?schema=s";

fn mounts(first: &str, second: &str) -> String {
    format!(
        "[[export]]\npath = \"/x\"\n[[export.mount]]\nat = \"/\"\n{first}\n\
         [[export.mount]]\nat = \"/more\"\n{second}\n"
    )
}

fn one(session: &str) -> String {
    format!("[[export]]\npath = \"/x\"\n[[export.mount]]\nat = \"/\"\nsession = \"{session}\"\n")
}

#[test]
fn a_mount_names_a_session_in_a_database() {
    let read = export(&(one(URL) + "chunk_size = 4096\n"));
    let StoreConfig::Database { url, chunk_size } = &read.mounts[0].store else {
        panic!("{:?}", read.mounts[0].store)
    };
    assert_eq!((url.name.as_str(), url.to_string().as_str()), ("chats/one", URL));
    assert_eq!(*chunk_size, Some(4096));
    assert_eq!(read.mounts[0].session(), None, "it is no file");
}

#[test]
fn what_is_wrong_with_a_url_is_said_with_a_hint() {
    let said = fault(&one("postgres://me:secret@db.example/agents/one"));
    assert!(said.contains("it has a password") && said.contains("PGPASSWORD"), "{said}");
    for (url, what) in [
        ("postgres://db.example/agents", "it names no session"),
        ("postgres://db.example/agents/a?schema=A", "no name of a schema"),
        ("postgres://db.example/agents/a?x=1", "`x`"),
    ] {
        let said = fault(&one(url));
        assert!(said.starts_with("5:11: ") && said.contains(what), "{said}");
        assert!(said.contains("[a session is named as postgres://"), "{said}");
    }
}

#[test]
fn two_texts_of_one_session_are_one_session() {
    let other = "postgres://you@DB.example:5432/agents/chats/one?schema=s&sslmode=disable";
    let session = |url: &str| format!("session = \"{url}\"");
    let said = fault(&mounts(&session(URL), &session(other)));
    assert!(said.contains("the export shows this directory in line"), "{said}");
    let settings = |size: u32| format!("{}\nchunk_size = {size}\nsubtree = \"/a\"", session(other));
    let first = format!("{}\nchunk_size = 512", session(URL));
    let said = fault(&mounts(&first, &settings(4096)));
    assert!(said.contains("has a different `chunk_size`"), "{said}");
    // One names it for both.
    let read = export(&mounts(&first, &format!("{}\nsubtree = \"/a\"", session(other))));
    assert_eq!(read.mounts[1].store.chunk_size(), Some(512));
    // Another name is another session.
    let apart = session("postgres://me@db.example/agents/chats/two?schema=s");
    assert_eq!(export(&mounts(&session(URL), &apart)).mounts.len(), 2);
}

#[test]
fn a_template_has_its_sessions_in_files() {
    let text = "[[template]]\npath = \"/c/{chat}\"\nallow = { chat = \"[a-z]+\" }\n\
        [[template.mount]]\nat = \"/\"\nsession = \"postgres://db/agents/{chat}\"\n";
    let error = Folder::new(text).read(Missing::Leave).unwrap_err();
    assert!(error.what().contains("the sessions of a template are files"), "{error}");
    assert!(error.hint().is_some());
}
