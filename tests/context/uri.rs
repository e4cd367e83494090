//! URIs and the directories that they stand for.

use acetate::context::{AccountName, Uri, UriPrefix};

#[test]
fn each_form_has_its_directory() {
    for (uri, path, category, kind, owner) in [
        (
            "ctx://acme-corp/users/user-123/memories/preferences/coffee_preferences",
            "/accounts/acme-corp/users/user-123/memories/preferences/coffee_preferences",
            "preferences",
            "MEMORY",
            "user:user-123",
        ),
        (
            "ctx://acme/users/alice/memories/profile",
            "/accounts/acme/users/alice/memories/profile",
            "profile",
            "MEMORY",
            "user:alice",
        ),
        (
            "ctx://acme/agents/agent-gpt-4/memories/events/event_20250317_abc123",
            "/accounts/acme/agents/agent-gpt-4/memories/events/event_20250317_abc123",
            "events",
            "MEMORY",
            "agent:agent-gpt-4",
        ),
        (
            "ctx://acme/agents/a.1~b/skills/profile",
            "/accounts/acme/agents/a.1~b/skills/profile",
            "skills",
            "SKILL",
            "agent:a.1~b",
        ),
    ] {
        let parsed: Uri = uri.parse().unwrap();
        assert_eq!((parsed.as_str(), parsed.path().as_str()), (uri, path));
        assert_eq!((parsed.category(), parsed.context_type()), (category, kind));
        assert_eq!(parsed.owner_space(), owner);
    }
    for category in ["entities", "cases", "patterns", "skills"] {
        let uri: Uri = format!("ctx://a/users/u/memories/{category}/s").parse().unwrap();
        assert_eq!((uri.category(), uri.account()), (category, "a"));
    }
}

#[test]
fn what_is_no_uri_of_a_node_is_refused() {
    let long = "x".repeat(129);
    for (rest, what) in [
        ("", "0 bytes"),
        ("acme", "names no node"),
        ("acme/users/alice/memories/events", "names no node"),
        ("acme/users/alice/memories/events/", "the slug has 0 bytes"),
        ("acme/users/alice/memories/profile/", "the slug has 0 bytes"),
        ("acme//alice/memories/events/x", "users, agents"),
        ("acme/users/alice/skills/x", "memories is expected"),
        ("acme/groups/alice/memories/events/x", "users, agents"),
        ("acme/users/alice/memories/secrets/x", "profile, preferences"),
        ("acme/users/../memories/events/x", "the user must be of"),
        ("acme/users/alice/memories/events/..", "the slug must be of"),
        ("acme/users/alice/memories/events/.outbox", "the slug must be of"),
        ("acme/users/alice/memories/events/a b", "the slug must be of"),
        ("acme/users/alice/memories/events/a%2fb", "the slug must be of"),
        ("acme/users/alice/memories/events/é", "the slug must be of"),
        ("acme/users/alice/memories/events/a\0", "the slug must be of"),
        ("acme/users/alice/memories/profile/content.md", "cannot be content.md"),
        ("acme/users/alice/memories/events/a/b", "nothing below it"),
        ("acme/agents/a/skills/b/c", "nothing below it"),
        (&format!("acme/users/alice/memories/events/{long}"), "129 bytes"),
        (&"acme/".repeat(300), "longer than 1024"),
    ] {
        let error = format!("ctx://{rest}").parse::<Uri>().unwrap_err().to_string();
        assert!(error.contains(what), "{rest}: {error}");
        assert!(!error.contains('\0') && error.len() < 600, "{error}");
    }
    for bad in ["http://acme/users/alice/memories/events/x", "ctx:/acme", "acme"] {
        assert!(bad.parse::<Uri>().unwrap_err().to_string().contains("begins with ctx://"));
    }
}

#[test]
fn a_prefix_ends_with_a_part() {
    for (text, as_text) in [
        ("ctx://", "ctx://"),
        ("ctx://acme", "ctx://acme"),
        ("ctx://acme/", "ctx://acme"),
        ("ctx://acme/users/alice/memories/", "ctx://acme/users/alice/memories"),
        ("ctx://acme/users/alice/memories/profile/x", "ctx://acme/users/alice/memories/profile/x"),
    ] {
        assert_eq!(text.parse::<UriPrefix>().unwrap().to_string(), as_text);
    }
    for bad in ["ctx://acme//", "ctx://..", "ctx://acme/u", "ctx://acme/users/alice/x"] {
        assert!(bad.parse::<UriPrefix>().is_err(), "{bad}");
    }
    assert!("..".parse::<AccountName>().is_err() && "a/b".parse::<AccountName>().is_err());
}
