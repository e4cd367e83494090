//! Which paths a selection has.

use acetate::delta::MergedPath;
use acetate::inspect::opened::OpenSession;
use acetate::inspect::selection::{Selection, SelectionText};

use crate::support::world::World;

const TREE: &str = r#"
    src/main.rs "x"
    src/deep/more.rs "x"
    src/.gitignore "*.tmp\n!kept.tmp\n/local\n"
    a{b}/c "x"
    [x] "x"
    .gitignore "build/\n*.log\n"
    .git/info/exclude "private\n"
"#;

/// Which of these paths are chosen.
fn chosen<'p>(world: &World, asked: &SelectionText, paths: &[&'p str]) -> Vec<&'p str> {
    let opened = OpenSession::open(&world.session(), Some(&world.base())).unwrap();
    let selection = Selection::read(&opened, asked).unwrap();
    let has = |path: &&&str| {
        let merged = MergedPath::from_user(path.as_bytes()).unwrap();
        opened.with_tree(|view| Ok(selection.has(view, &merged, path.ends_with('/')))).unwrap()
    };
    paths.iter().filter(has).copied().collect()
}

fn asked(paths: &[&str]) -> SelectionText {
    SelectionText {
        paths: paths.iter().map(|path| (*path).into()).collect(),
        ..SelectionText::default()
    }
}

#[test]
fn pathspecs_are_gits() {
    let world = World::new(TREE);
    let all = ["/src/", "/src/main.rs", "/src/deep/more.rs", "/a{b}/c", "/[x]", "/x", "/SRC.rs"];
    let check = |specs: &[&str], expected: &[&str]| {
        assert_eq!(chosen(&world, &asked(specs), &all), expected, "{specs:?}");
    };
    check(&[], &all);
    check(&["src"], &all[..3]);
    check(&["*.rs"], &["/src/main.rs", "/src/deep/more.rs", "/SRC.rs"]);
    check(&[":(glob)*.rs"], &["/SRC.rs"]);
    check(&[":(glob)**/*.rs"], &["/src/main.rs", "/src/deep/more.rs", "/SRC.rs"]);
    check(&[":(icase)src*"], &["/src/", "/src/main.rs", "/src/deep/more.rs", "/SRC.rs"]);
    check(&[":(icase)SRC/Deep"], &["/src/deep/more.rs"]);
    check(&[":(icase)SRC"], &all[..3]);
    check(&[":(icase)A{B}", ":(icase)[X]"], &["/a{b}/c", "/[x]", "/x"]);
    check(&[":(exclude,icase)SRC"], &all[3..]);
    check(&[":(exclude,icase)/Src/Main.RS", ":(icase)src"], &["/src/", "/src/deep/more.rs"]);
    check(&[":(icase)"], &all);
    check(&["a{b}*"], &["/a{b}/c"]);
    check(&["[x]"], &["/[x]"]);
    check(&["[x]*"], &["/x"]);
    check(&["\\[x]*"], &["/[x]"]);
    check(&["src", ":!src/deep"], &["/src/", "/src/main.rs"]);
    check(&[":(exclude,glob)**/deep/**", "src"], &["/src/", "/src/main.rs"]);
    check(&[":!*.rs", ":^a{b}"], &["/src/", "/[x]", "/x"]);
    check(&[":/"], &all);
    check(&["s*", ":(top,exclude)src/main.rs"], &["/src/", "/src/deep/more.rs"]);
    let in_src = MergedPath::from_user(b"src");
    let from_src = |specs: &[&str]| SelectionText { current: in_src.clone(), ..asked(specs) };
    assert_eq!(chosen(&world, &from_src(&["deep"]), &all), ["/src/deep/more.rs"]);
    assert_eq!(chosen(&world, &from_src(&["*.rs"]), &all), &all[1..3]);
    assert_eq!(chosen(&world, &from_src(&[":/*.rs", ":!*"]), &all), ["/SRC.rs"]);
}

#[test]
fn what_git_ignores_is_left_out() {
    let world = World::new(TREE);
    world.put("src/deep/.gitignore", "!again.log\n");
    let paths = [
        "/build/",
        "/build/x",
        "/build",
        "/a.log",
        "/src/a.tmp",
        "/src/kept.tmp",
        "/src/local",
        "/src/deep/local",
        "/src/deep/again.log",
        "/private",
        "/src/private/x",
        "/own",
    ];
    let asked = SelectionText { gitignore: Some(b"own\n".to_vec()), ..SelectionText::default() };
    assert_eq!(
        chosen(&world, &asked, &paths),
        ["/build", "/src/kept.tmp", "/src/deep/local", "/src/deep/again.log"]
    );
}
