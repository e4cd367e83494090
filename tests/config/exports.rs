//! `[[export]]`: names, paths, options, clients, maps, quotas, what is hidden.

use std::net::IpAddr;

use acetate::config::{ExportOptions, QuotaConfig, SquashMode, limits};

use super::{export, fault, faults, with};

#[test]
fn little_is_needed_and_the_rest_is_as_in_exports_5() {
    let export = export(&with(""));
    assert_eq!((export.name.as_str(), export.path.unwrap().as_str()), ("x", "/x"));
    assert_eq!(export.options, ExportOptions::default());
    let usual = export.options;
    assert!(!usual.is_read_only && usual.is_secure && usual.takes_sys && !usual.takes_none);
    assert_eq!((usual.squash, usual.anon_uid, usual.anon_gid), (SquashMode::Root, 65534, 65534));
    assert_eq!(export.quota, QuotaConfig::default());
    assert!(export.hide.is_empty() && export.uids.is_none() && export.gids.is_none());
    assert!(export.guards.is_empty() && export.token.is_none() && !export.is_secret);
}

#[test]
fn who_may_come_if_nothing_is_said_is_this_machine() {
    let clients = export(&with("")).clients;
    let is_in = |address: &str| clients.contain(address.parse::<IpAddr>().unwrap());
    assert!(is_in("127.0.0.1") && is_in("127.1.2.3") && is_in("::1") && is_in("::ffff:127.0.0.1"));
    assert!(!is_in("10.0.0.1") && !is_in("::2") && !is_in("128.0.0.1"));
}

#[test]
fn clients_are_addresses_and_networks() {
    let lines = "clients = [\"127.0.0.1/8\", \"10.1.2.3\", \"fd00::/8\", \"::ffff:10.9.0.0/112\"]";
    let clients = export(&with(lines)).clients;
    let is_in = |address: &str| clients.contain(address.parse::<IpAddr>().unwrap());
    for address in ["127.9.9.9", "10.1.2.3", "::ffff:10.1.2.3", "fdff::1", "10.9.255.1"] {
        assert!(is_in(address), "{address}");
    }
    for address in ["10.1.2.4", "fe00::1", "::1", "10.8.0.1"] {
        assert!(!is_in(address), "{address}");
    }
    let shown: Vec<_> = clients.networks().map(ToString::to_string).collect();
    assert_eq!(shown, ["127.0.0.0/8", "10.1.2.3/32", "fd00::/8", "10.9.0.0/16"]);
    let all = export(&with("clients = [\"*\"]")).clients;
    assert!(all.contain("8.8.8.8".parse().unwrap()) && all.contain("2001::1".parse().unwrap()));
    faults(&[
        (&with("clients = []"), "3:11: no client could mount this [leave `clients` out"),
        (
            &with("clients = [\"::1\", \"host\"]"),
            "3:19: 'host' is not an address or a network [such",
        ),
        (&with("clients = [\"10.0.0.0/33\"]"), "is not an address or a network"),
        (&with("clients = \"10.0.0.1\""), "3:11: invalid type: string"),
    ]);
}

#[test]
fn the_words_of_exports_5_are_understood() {
    let words = "options = [\"ro\", \"insecure\", \"no_root_squash\", \"anonuid=7\", \
        \"anongid=8\", \"sec=sys:none\", \"ro\"]";
    let options = export(&with(words)).options;
    assert!(options.is_read_only && !options.is_secure && options.takes_sys && options.takes_none);
    assert_eq!((options.squash, options.anon_uid, options.anon_gid), (SquashMode::NoRoot, 7, 8));
    let options = export(&with("options = [\"all_squash\", \"sec=none\", \"rw\"]")).options;
    assert_eq!(options.squash, SquashMode::All);
    assert!(!options.takes_sys && options.takes_none && !options.is_read_only);
}

#[test]
fn words_that_mean_nothing_or_contradict_each_other_are_refused() {
    let word = |word: &str| with(&format!("options = [\"rw\", \"secure\", {word}]"));
    faults(&[
        (&word("\"ro\""), "3:28: 'ro' contradicts an option before it [leave one of them out]"),
        (&word("\"insecure\""), "'insecure' contradicts"),
        (&word("\"root_squash\", \"all_squash\""), "'all_squash' contradicts"),
        (&word("\"anonuid=1\", \"anonuid=2\""), "'anonuid=2' contradicts"),
        (&word("\"sec=sys\", \"sec=none\""), "'sec=none' contradicts"),
        (&word("\"anonuid=-2\""), "expected a number, 0 to 4294967294"),
        (&word("\"anongid=4294967295\""), "expected a number, 0 to 4294967294"),
        (&word("\"sec=krb5\""), "`sec` takes sys, none, or both: sec=sys:none [there is no Ker"),
        (&word("\"sync\""), "'sync' has no effect [leave it out: the durability of the server"),
        (&word("\"fsid=0\""), "'fsid=0' has no effect [leave it out: an export's number"),
        (&word("\"no_subtree_check\""), "'no_subtree_check' has no effect"),
        (&word("\"rw,secure\""), "there is no option 'rw,secure' [ro, rw, secure"),
        (&word("\"x\\u001b[2J\""), "there is no option 'x\\u{1b}[2J'"),
    ]);
}

#[test]
fn names_and_paths_are_normalised_and_unique() {
    assert_eq!(export(&with("name = \"chat.A-1_x\"")).name, "chat.A-1_x");
    let at = |path: &str| with("").replace("\"/x\"", &format!("\"{path}\""));
    assert_eq!(export(&at("/a/b")).name, "a/b");
    assert_eq!(export(&at("/")).name, "/");
    faults(&[
        (&at("x"), "2:8: a path must begin with '/'"),
        (&at("/x/"), "2:8: a path cannot contain an empty name"),
        (&at("/x//y"), "a path cannot contain an empty name"),
        (&at("/x/../y"), "a path cannot contain '.' or '..'"),
        (&at("/x\\ny"), "a path cannot contain control characters"),
        (&at(&format!("/{}", "n".repeat(256))), "each name in it 255"),
        (&at(&"/n".repeat(513)), "a path has at most 1024 bytes"),
        (&with("name = \"a b\""), "3:8: a name has 1 to 64 ASCII letters"),
        (&with("name = \"\""), "a name has 1 to 64 ASCII letters"),
        ("[[export]]\n", "1:1: this export has no path [add path = \"/NAME\""),
        ("", "there are no exports [add [[export]]"),
        (&[with(""), with("")].concat(), "7:1: the name x is that of the export in line 1"),
        (
            &[with(""), with("name = \"y\"")].concat(),
            "7:1: the path /x is that of the export in line 1",
        ),
    ]);
    // One below the other is no matter: names, not directories.
    let both = [with(""), at("/x/y").replace("s.db", "t.db")].concat();
    let folder = super::Folder::new(&both);
    assert_eq!(folder.read(acetate::config::Missing::Leave).unwrap().exports.len(), 2);
}

#[test]
fn a_key_that_is_not_known_is_a_fault_with_its_place() {
    faults(&[
        (&with("colour = 1"), "3:1: unknown field `colour`, expected one of"),
        (&format!("{}x = 1\n", with("")), "unknown field `x`"),
        ("listen = 1\n", "1:1: unknown field `listen`"),
        (&with("quota = { byte = 1 }"), "unknown field `byte`"),
        (&with("path = \"/y\""), "3:1: duplicate key"),
        ("[[export]\n", "1:10:"),
    ]);
}

#[test]
fn quotas_are_numbers_with_units() {
    let quota = export(&with("quota = { bytes = \"2GiB\", files = 100000 }")).quota;
    assert_eq!((quota.bytes, quota.files), (Some(2 << 30), Some(100_000)));
    let largest = |text: &str| export(&with(text)).max_file_bytes;
    assert_eq!(largest("max_file_bytes = \"1TiB\""), Some(1 << 40));
    assert_eq!(largest(""), None);
    let quota = export(&with("quota = { bytes = 4096 }")).quota;
    assert_eq!((quota.bytes, quota.files), (Some(4096), None));
    faults(&[
        (&with("max_file_bytes = \"1.5TiB\""), "not a number of bytes [a number of bytes"),
        (&with("quota = {}"), "3:9: an empty quota has no effect [such as"),
        (&with("quota = { files = 0 }"), "a quota of 0 allows no writes [for an export"),
        (&with("quota = { bytes = \"2gb\" }"), "3:19: not a number of bytes [a number of"),
        (&with("quota = { bytes = -1 }"), "not a number of bytes"),
        (&with("quota = { bytes = 1.5 }"), "not a number of bytes"),
        (&with("quota = { files = -1 }"), "3:19: invalid value: integer `-1`"),
    ]);
}

#[test]
fn what_is_hidden_is_patterns() {
    let hide = export(&with("hide = [\".env\", \"**/.ssh/**\"]")).hide;
    assert!(hide.covers(b"a/.env") && hide.covers(b".ssh/id") && !hide.covers(b".ssh"));
    faults(&[
        (&with("hide = [\"a\", \"b/\"]"), "3:14: a pattern does not end with '/'"),
        (&with("hide = [\"!a\"]"), "there are no exceptions with '!'"),
        (&with("hide = [\"[a\"]"), "3:9: unclosed character class"),
        (&with("hide = [\"\"]"), "an empty pattern"),
        (&with("hide = \".env\""), "3:8: invalid type: string"),
    ]);
}

#[test]
fn maps_are_injective() {
    let lines = "options = [\"no_root_squash\"]\n\
        map_uids = [{ client = 1000, server = 0 }, { client = 2000, server = 5000, count = 10 }]";
    let map = export(&with(lines)).uids.unwrap();
    for (client, server) in [(1000, 0), (2000, 5000), (2009, 5009)] {
        assert_eq!((map.to_server(client), map.to_client(server)), (Some(server), Some(client)));
    }
    assert_eq!((map.to_server(0), map.to_server(2010), map.to_client(5010)), (None, None, None));
    let map = |ranges: &str| with(&format!("map_gids = [{ranges}]"));
    faults(&[
        (&map("{ client = 1, server = 0 }"), "3:13: root_squash takes the server's id 0 away [add"),
        (&map("{ client = 1, server = 2, count = 0 }"), "an empty range"),
        (&map("{ client = 4294967295, server = 2 }"), "ids end at 4294967294"),
        (
            &map("{ client = 1, server = 10, count = 5 }, { client = 5, server = 20 }"),
            "3:53: a client's id would map to two ids of the server",
        ),
        (
            &map("{ client = 1, server = 10, count = 5 }, { client = 6, server = 14 }"),
            "an id of the server would map to two ids of a client [the server's ids are shown",
        ),
        (&map("{ client = 1 }"), "missing field `server`"),
    ]);
}

#[test]
fn there_is_a_limit_to_everything() {
    let list = |key: &str, item: &str, count: usize| {
        with(&format!("{key} = [{}]", vec![format!("\"{item}\""); count].join(", ")))
    };
    let said = fault(&list("hide", "a", limits::MAX_HIDES + 1));
    assert!(said.contains("at most 1024 patterns in `hide`"), "{said}");
    assert_eq!(export(&list("hide", "a", limits::MAX_HIDES)).hide.patterns().len(), 1024);
    let said = fault(&list("clients", "::1", limits::MAX_CLIENTS + 1));
    assert!(said.contains("at most 1024 addresses and networks in `clients`"), "{said}");
    let said = fault(&list("options", "rw", limits::MAX_OPTIONS + 1));
    assert!(said.contains("at most 64 options"), "{said}");
    let many = |count: usize| {
        (0..count).map(|n| with("").replace("/x", &format!("/x{n}"))).collect::<String>()
    };
    let said = fault(&many(limits::MAX_EXPORTS + 1));
    assert!(said.contains("98305:1: at most 16384 exports"), "{said}");
    let said = fault(&" ".repeat((4 << 20) + 1));
    assert_eq!(said, "an exports file has at most 4 MiB");
}

#[test]
fn a_file_that_cannot_be_read_says_so() {
    let folder = super::Folder::new("");
    std::fs::write(folder.file(), b"# \xff\n").unwrap();
    let said = folder.read(acetate::config::Missing::Leave).unwrap_err().to_string();
    assert!(said.ends_with("exports.toml: not UTF-8 text"), "{said}");
    std::fs::remove_file(folder.file()).unwrap();
    let said = folder.read(acetate::config::Missing::Leave).unwrap_err().to_string();
    assert!(said.contains("exports.toml: No such file or directory"), "{said}");
}
