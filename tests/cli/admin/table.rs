//! docs/OPERATIONS.md has a table of all metrics, which is what a server prints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::Watched;
use crate::support::http::get;

/// A metric as it is described: its type, labels, unit and meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Described {
    kind: String,
    unit: String,
    help: String,
}

/// The metrics of the table, with the names of their labels.
fn documented() -> BTreeMap<String, (Described, BTreeSet<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/OPERATIONS.md");
    let text = fs::read_to_string(path).unwrap();
    let head = "| Metric | Type | Labels | Unit | Meaning |\n";
    let table = &text[text.find(head).expect("a table of metrics") + head.len()..];
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<String> =
            line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
        let [name, kind, labels, unit, help] = cells.try_into().expect("five columns");
        let words = |text: &str| {
            text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>()
        };
        let name = words(&name).pop_first().expect("a name");
        (name, (Described { kind, unit, help }, words(&labels)))
    };
    rows.map(row).collect()
}

/// The metrics that a server describes.
fn described(text: &str) -> BTreeMap<String, Described> {
    let mut all = BTreeMap::<String, Described>::new();
    let empty = || Described { kind: String::new(), unit: String::new(), help: String::new() };
    for line in text.lines().filter_map(|line| line.strip_prefix("# ")) {
        let mut words = line.splitn(3, ' ');
        let (Some(what), Some(name), rest) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let of = all.entry(name.to_owned()).or_insert_with(empty);
        let rest = rest.unwrap_or_default().to_owned();
        match what {
            "HELP" => of.help = rest.trim_end_matches('.').to_owned(),
            "TYPE" => of.kind = rest,
            "UNIT" => of.unit = rest,
            other => panic!("{other}"),
        }
    }
    // Samples of counters have a suffix.
    let suffixed = all.into_iter().map(|(name, of)| match of.kind.as_str() {
        "counter" => (format!("{name}_total"), of),
        _ => (name, of),
    });
    suffixed.collect()
}

/// The names of labels in the samples of each metric.
fn labels(text: &str, metrics: &BTreeMap<String, Described>) -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::<String, BTreeSet<String>>::new();
    for sample in text.lines().filter(|line| !line.starts_with('#')) {
        let name = sample.split(['{', ' ']).next().unwrap();
        let parts = ["_bucket", "_sum", "_count"];
        let metric = match metrics.contains_key(name) {
            true => name,
            false => parts.iter().find_map(|part| name.strip_suffix(part)).expect(name),
        };
        assert!(metrics.contains_key(metric), "not described: {sample}");
        let names = sample.split_once('{').map(|(_, rest)| rest.rsplit_once('}').unwrap().0);
        let names = names.into_iter().flat_map(|labels| labels.split("\","));
        let names = names.map(|label| label.split_once('=').unwrap().0.to_owned());
        let is_bound = |name: &String| name == "le";
        all.entry(metric.to_owned()).or_default().extend(names.filter(|name| !is_bound(name)));
    }
    all
}

#[test]
fn the_table_of_metrics_is_what_a_server_prints() {
    let dir = tempfile::tempdir().unwrap();
    let exports = "[[export]]\npath = \"/a\"\noptions = [\"insecure\"]\n\
        quota = { bytes = \"1MiB\", files = 9 }\n\
        [[export.mount]]\nat = \"/\"\nsession = \"a.db\"\n";
    fs::write(dir.path().join("exports.toml"), exports).unwrap();
    let watched = Watched::start_in(dir, &["--config", "exports.toml"]);
    crate::cli::serve::mount_call(watched.address(), 1, b"\0\0\0\x02/a\0\0");
    let text = get(watched.admin, "/metrics").body;
    let (metrics, documented) = (described(&text), documented());
    let known: BTreeMap<_, _> =
        documented.iter().map(|(name, (described, _))| (name.clone(), described.clone())).collect();
    assert_eq!(metrics, known);
    let labels = labels(&text, &metrics);
    for (name, (described, names)) in documented {
        match labels.get(&name) {
            Some(seen) => assert_eq!(*seen, names, "{name}"),
            // What only other systems than this have.
            None => assert!(
                cfg!(not(target_os = "linux")) && name.starts_with("process_"),
                "no sample of {name}: {described:?}"
            ),
        }
    }
}

#[test]
fn the_dashboard_and_the_alert_rules_use_metrics_of_the_table() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let known = documented();
    let mut used = BTreeSet::new();
    for file in ["grafana.json", "alerts.yml"] {
        let text = fs::read_to_string(docs.join(file)).unwrap();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let is_metric = |word: &&str| word.starts_with("acetate_") || word.starts_with("process_");
        for word in words.filter(is_metric) {
            let parts = ["_bucket", "_sum", "_count"];
            let metric = parts.iter().find_map(|part| word.strip_suffix(part)).unwrap_or(word);
            assert!(known.contains_key(metric), "{file}: {word}");
            used.insert(metric.to_owned());
        }
    }
    let unused: Vec<_> = known.keys().filter(|name| !used.contains(*name)).collect();
    assert!(unused.is_empty(), "no panel and no rule shows {unused:?}");
}
