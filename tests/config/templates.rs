//! `[[template]]`: which paths match, what they get, and what is said of what is wrong.

use std::fs;
use std::path::PathBuf;

use acetate::config::{ExportConfig, Missing, TemplateConfig};
use proptest::prelude::*;

use super::{Folder, fault};

const TEMPLATE: &str = r#"
[[template]]
path = "/chat/{user}/{chat}"
allow = { user = "[a-z0-9-]{1,8}", chat = "[a-z0-9.{}-]{1,16}" }
options = ["insecure"]

  [[template.mount]]
  at = "/"
  session = "chats/{user}/{chat}.db"
  base = "/srv/{user}"

  [[template.mount]]
  at = "/.user"
  session = "users/{user}.db"
  shared = true
  subtree = "/of/{user}"

  [[template.guard]]
  path = "/log.jsonl"
  jsonl = true
"#;

fn template_in(folder: &Folder) -> TemplateConfig {
    let config = folder.read(Missing::Make).unwrap();
    assert_eq!((config.exports.len(), config.templates.len()), (0, 1));
    config.templates[0].clone()
}

fn template() -> (Folder, TemplateConfig) {
    let folder = Folder::new(TEMPLATE);
    let template = template_in(&folder);
    (folder, template)
}

/// The session, base and subtree of each mount.
fn mounts(export: &ExportConfig) -> Vec<(PathBuf, Option<PathBuf>, String)> {
    let mount = |mount: &acetate::config::MountConfig| {
        (mount.session().unwrap().clone(), mount.base.clone(), mount.subtree.to_string())
    };
    export.mounts.iter().map(mount).collect()
}

#[test]
fn a_path_gets_the_export_with_its_values() {
    let (folder, template) = template();
    let export = template.instance(b"/chat/u1/c1").unwrap();
    assert_eq!(export.path.as_ref().unwrap().as_str(), "/chat/u1/c1");
    assert_eq!(export.name, "chat/u1/c1");
    assert!(!export.options.is_secure && !export.is_secret);
    assert_eq!(export.guards.len(), 1);
    let file = |name: &str| folder.path().join(name);
    let chat = (file("chats/u1/c1.db"), Some("/srv/u1".into()), "/".to_owned());
    let user = (file("users/u1.db"), None, "/of/u1".to_owned());
    assert_eq!(mounts(&export), [chat, user]);
    assert_eq!(export.mounts.iter().map(|it| it.is_shared).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn what_is_no_path_of_the_template_gets_nothing() {
    let (_folder, template) = template();
    let long = format!("/chat/u1/{}", "c".repeat(17));
    for path in [
        &b"/chat/u1"[..],
        b"/chat/u1/c1/x",
        b"/chats/u1/c1",
        b"chat/u1/c1",
        b"/chat//c1",
        b"/chat/u1/",
        b"/chat/U1/c1",
        b"/chat/u1/c1\n",
        b"/chat/u1/c\xff",
        b"/chat/u1/..",
        b"/chat/u1/.",
        b"/chat/u1/a%2fb",
        b"/chat/u1/a\0",
        b"/chat/{user}/c1",
        b"",
        b"/",
        long.as_bytes(),
    ] {
        assert_eq!(template.instance(path), None, "{}", path.escape_ascii());
    }
}

#[test]
fn a_value_that_looks_like_a_parameter_stays_what_it_is() {
    let (folder, template) = template();
    let export = template.instance(b"/chat/u1/{user}").unwrap();
    assert_eq!(mounts(&export)[0].0, folder.path().join("chats/u1/{user}.db"));
}

#[test]
fn each_path_has_a_token_of_its_own_and_no_other_opens_it() {
    let with_token =
        TEMPLATE.replace("options =", "token = \"derived\"\nname = \"chats\"\noptions =");
    let folder = Folder::new(&with_token);
    assert!(folder.read(Missing::Leave).unwrap().templates[0].mounted_path("/chat/u/c").is_none());
    let template = template_in(&folder);
    let (one, other) = ("/chat/u1/c1", "/chat/u1/c2");
    let paths = [one, other].map(|path| template.mounted_path(path).unwrap());
    let token = |path: &str| path.rsplit_once('/').unwrap().1.to_owned();
    assert_eq!(token(&paths[0]).len(), 32);
    assert_ne!(token(&paths[0]), token(&paths[1]));
    let export = template.instance(paths[0].as_bytes()).unwrap();
    assert!(export.is_secret);
    assert_eq!((export.name.as_str(), export.path.unwrap().as_str()), ("chat/u1/c1", &*paths[0]));
    let swapped = format!("{one}/{}", token(&paths[1]));
    let upper = format!("{one}/{}", token(&paths[0]).to_uppercase());
    let signed = format!("{one}/+{}", &token(&paths[0])[1..]);
    for path in [one, &swapped, &upper, &signed, &paths[0][..paths[0].len() - 1]] {
        assert_eq!(template.instance(path.as_bytes()), None, "{path}");
    }
    // The key is kept; without its line there is another one.
    assert_eq!(template_in(&folder).mounted_path(one).unwrap(), paths[0]);
    fs::write(folder.path().join("exports.toml.tokens"), "").unwrap();
    assert_ne!(template_in(&folder).mounted_path(one).unwrap(), paths[0]);
}

#[test]
fn instances_are_found_by_their_session_files() {
    let (folder, template) = template();
    assert!(template.existing_paths().unwrap().is_empty(), "there is no directory");
    for file in ["u1/c1.db", "u1/c2.db", "u1/c1.db-wal", "u2/c1.db", "U3/c1.db", "u1/C.db", "c1.db"]
    {
        let file = folder.path().join("chats").join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    let mut found = template.existing_paths().unwrap();
    found.sort();
    assert_eq!(found, ["/chat/u1/c1", "/chat/u1/c2", "/chat/u2/c1"]);
}

#[test]
fn what_is_wrong_with_a_template_is_said() {
    let replaced = |from: &str, to: &str| {
        assert!(TEMPLATE.contains(from), "{from}");
        fault(&TEMPLATE.replacen(from, to, 1))
    };
    for (from, to, what) in [
        ("/{user}/{chat}", "/x", "the path has no parameter"),
        ("/{user}/{chat}", "/{user}/{chat}.x", "a parameter is a whole name"),
        ("/{user}/{chat}", "/{user}/{user}", "{user} occurs twice"),
        ("/{user}/{chat}", "/{User}/{chat}", "a parameter is a whole name"),
        ("user = \"[a-z0-9-]{1,8}\", ", "", "which values {user} may have"),
        ("allow = {", "allow = { x = \"y\",", "the path has no parameter {x}"),
        ("[a-z0-9-]{1,8}", "[a-z", "not a regular expression: unclosed character class"),
        ("[a-z0-9-]{1,8}", "(a{1,1000}){1,1000}", "not a regular expression"),
        ("/srv/{user}", "/srv/{chat}x{tool}", "the path has no parameter {tool}"),
        ("chats/{user}/{chat}.db", "chats/{user}.db", "as it has no {chat}"),
        ("users/{user}.db", "users/{user}/{chat}.db", "so it is not shared"),
        ("chats/{user}/{chat}.db", "chats/{user}-{chat}.db", "{user} and {chat} are in one name"),
        ("chats/{user}/{chat}.db", "chats/{user}/../{chat}.db", "has no '..'"),
        ("chats/{user}/{chat}.db", "chats/{user}/{chat}", "does not end with a parameter"),
        ("at = \"/.user\"", "at = \"/{user}\"", "`at` has no parameters"),
        ("[a-z0-9-]{1,8}", "a)|(b", "not a regular expression"),
        ("chats/{user}/{chat}.db", "/srv/{user}/{chat}.db", "in the directory of sessions /srv"),
        ("options =", "token = true\noptions =", "the token of a template is \"derived\""),
        ("options =", "token = \"derived\"\noptions =", "needs a name"),
        ("path = \"/chat/{user}/{chat}\"", "", "a template needs a path"),
    ] {
        let said = replaced(from, to);
        assert!(said.contains(what), "{to}: {said}");
    }
    let base_alone = "base = \"/srv/{user}\"";
    let said = replaced(
        base_alone,
        "base = \"/srv/{user}/x\"\n[[template.mount]]\nat = \"/x\"\n\
        session = \"tools.db\"\nshared = true\nbase = \"/srv/{user}\"",
    );
    assert!(said.contains("the base has {user}, and its session has not"), "{said}");
    let twice =
        format!("{TEMPLATE}{}", TEMPLATE.replace("{chat}", "{tool}").replace("chat =", "tool ="));
    assert!(fault(&twice).contains("the template in line 2 may match the same path"));
    let secret = TEMPLATE.replace("options =", "token = \"derived\"\nname = \"t\"\noptions =");
    let secret = format!("{TEMPLATE}{}", secret.replace("chats/", "secret/"));
    assert!(fault(&secret).contains("may match the same path"), "its name is the same");
    let tools = TEMPLATE.replace("/chat/", "/tool/");
    let apart = format!("{TEMPLATE}{}", tools.replace("chats/", "tools/"));
    assert_eq!(Folder::new(&apart).read(Missing::Leave).unwrap().templates.len(), 2);
    assert!(fault(&format!("{TEMPLATE}{tools}")).contains("may have the same session"));
    let meets = tools.replace("chats/{user}/{chat}.db", "chats/{user}/x-{chat}.db");
    assert!(fault(&format!("{TEMPLATE}{meets}")).contains("may have the same session"));
    let parts = tools.replace("chats/{user}/{chat}.db", "chats/{user}/{chat}.tool");
    let apart = format!("{TEMPLATE}{parts}");
    assert_eq!(Folder::new(&apart).read(Missing::Leave).unwrap().templates.len(), 2);
    for (line, what) in [
        ("allow = { x = \"y\" }", "`allow` is for [[template]]"),
        ("create = false", "`create` is for [[template]]"),
        ("expire = \"1d\"", "`expire` is for [[template]]"),
        ("token = \"derived\"", "token is true or false"),
    ] {
        let said = fault(&super::with(line));
        assert!(said.contains(what), "{said}");
    }
}

proptest! {
    /// The parser and the model agree on what a path gets.
    #[test]
    fn a_path_matches_as_the_model_says(
        names in prop::collection::vec("(chat|[a-z0-9]{1,9}|[.]{1,2}|[A-Z]|\\{user\\}|)", 0..5),
    ) {
        let (folder, template) = template();
        let path: String = names.iter().map(|name| format!("/{name}")).collect();
        let is_in = |name: &str, most: usize, extra: &str| {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || extra.contains(c);
            (1..=most).contains(&name.len()) && name.chars().all(fits)
        };
        let model = match &names[..] {
            [chat, user, id] if chat == "chat" && is_in(user, 8, "-") && is_in(id, 16, ".{}-")
                && id != "." && id != ".." =>
            {
                Some(folder.path().join(format!("chats/{user}/{id}.db")))
            }
            _ => None,
        };
        let got = template.instance(path.as_bytes()).map(|export| mounts(&export)[0].0.clone());
        prop_assert_eq!(got, model);
    }
}

#[test]
fn the_time_after_which_an_instance_expires_has_bounds() {
    for (written, secs) in [("1s", 1), ("36h", 129_600), ("2 weeks", 1_209_600)] {
        let text = TEMPLATE.replace("options =", &format!("expire = \"{written}\"\noptions ="));
        let config = Folder::new(&text).read(Missing::Leave).unwrap();
        assert_eq!(config.templates[0].expire.map(|expire| expire.as_secs()), Some(secs));
        let text = format!("ephemeral_expire = \"{written}\"\n{TEMPLATE}");
        let config = Folder::new(&text).read(Missing::Leave).unwrap();
        assert_eq!(config.ephemeral_expire.as_secs(), secs);
    }
    for written in ["\"0s\"", "\"3651d\"", "\"1 month\"", "\"-1d\"", "\"\"", "30"] {
        let said = fault(&TEMPLATE.replace("options =", &format!("expire = {written}\noptions =")));
        assert!(said.contains("expire is a time of 1s to 3650d"), "{written}: {said}");
        let said = fault(&format!("ephemeral_expire = {written}\n{TEMPLATE}"));
        assert!(said.contains("ephemeral_expire is a time of 1s to 3650d"), "{written}: {said}");
    }
}
