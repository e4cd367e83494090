//! Readers that fill the caches while a writer makes them wrong: no answer is older than the
//! last answered change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use acetate::overlay::Overlay;
use acetate::vfs::{Cookie, FsError, Locator, Vfs};

use crate::support::client::caller;
use crate::support::world::World;

const TREE: &str = r#"
    a/x "x"
    a/s/y "y"
    b/x "bx"
    b/s/z "z"
    one "linked"
    two = one
"#;

/// How long each test runs.
const DURATION: Duration = Duration::from_secs(2);

/// Looks up and lists all that may be there, again and again.
async fn look_around(overlay: Arc<Overlay>, stop: Arc<AtomicBool>) {
    let root = caller(0, 0, &[]);
    while !stop.load(Ordering::Relaxed) {
        for dir in [&b"a"[..], b"b", b"t", b"two"] {
            let Ok(dir) = overlay.lookup(&root, &Locator::ROOT, dir).await.result else { continue };
            for name in [&b"x"[..], b"s", b"y", b"z", b"new", b".."] {
                let Ok(found) = overlay.lookup(&root, &dir.object, name).await.result else {
                    continue;
                };
                let _ = overlay.lookup(&root, &found.object, b"y").await;
                let _ = overlay.lookup(&root, &found.object, b"z").await;
                let _ = overlay.getattr(&root, &found.object).await;
            }
            let _ = overlay.readdir(&root, &dir.object, Cookie(0), true, |_| true).await;
        }
    }
}

/// Runs `change` again and again while four readers look around.
fn race(world: &World, mut change: impl FnMut()) {
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (overlay, stop) = (world.overlay.clone(), stop.clone());
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(look_around(overlay, stop));
            });
        }
        // The readers end however this does.
        struct Stop(Arc<AtomicBool>);
        impl Drop for Stop {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(stop.clone());
        let start = Instant::now();
        while start.elapsed() < DURATION {
            change();
        }
    });
}

#[test]
fn renamed_base_directories_are_where_they_are() {
    let world = World::new(TREE);
    race(&world, || {
        world.rename("a", "t").unwrap();
        assert_eq!(world.find("a/x").err(), Some(FsError::NotFound));
        assert_eq!(world.cat("t/s/y"), "y");
        world.rename("b", "a").unwrap();
        assert_eq!(world.cat("a/x"), "bx");
        assert_eq!(world.cat("a/s/z"), "z");
        assert_eq!(world.find("a/s/y").err(), Some(FsError::NotFound));
        world.rename("a", "b").unwrap();
        world.rename("t", "a").unwrap();
        assert_eq!(world.cat("a/s/y"), "y");
        assert_eq!(world.cat("b/x"), "bx");
    });
}

#[test]
fn names_come_and_go_and_directories_are_made_again() {
    let world = World::new(TREE);
    world.rm_rf("a");
    race(&world, || {
        world.mkdir("a").unwrap();
        for name in ["a/x", "a/s", "a/s/y"] {
            assert_eq!(world.find(name).err(), Some(FsError::NotFound), "{name}");
        }
        world.mkdir("a/s").unwrap();
        world.put("a/s/y", "mine");
        assert_eq!(world.cat("a/s/y"), "mine");
        assert_eq!(world.ls("a"), ["s"]);
        world.rename("a", "t").unwrap();
        assert_eq!(world.cat("t/s/y"), "mine");
        world.rename("t", "a").unwrap();
        assert_eq!(world.ls("a/s"), ["y"]);
        assert_eq!(world.find("a/x").err(), Some(FsError::NotFound));
        world.rm_rf("a");
        assert_eq!(world.find("a").err(), Some(FsError::NotFound));
    });
}

#[test]
fn a_change_by_one_name_is_seen_by_the_other() {
    let world = World::new(TREE);
    let mut round = 0;
    race(&world, || {
        round += 1;
        let text = format!("{round:06}");
        world.write("one", 0, text.as_bytes()).unwrap();
        assert_eq!(world.cat("two"), text);
        assert_eq!(world.stat("two").size, 6);
        world.rename("two", "a/new").unwrap();
        assert_eq!(world.cat("a/new"), text);
        world.rename("a/new", "two").unwrap();
        assert_eq!(world.stat("one").nlink, 2);
    });
}

/// All names in a directory, by pages of 20.
fn listed(world: &World, dir: &Locator) -> Vec<Vec<u8>> {
    let (mut cookie, mut names) = (0, Vec::new());
    loop {
        let (page, eof) = world.page(dir, cookie, 20, false).unwrap();
        cookie = page.last().map_or(cookie, |entry| entry.cookie.0);
        names.extend(page.into_iter().map(|entry| entry.name.to_vec()));
        if eof {
            return names;
        }
    }
}

#[test]
fn a_listing_in_pages_holds_all_that_was_there_when_it_began() {
    let world = World::new(&(0..80).map(|n| format!("dir/base{n}\n")).collect::<String>());
    let start = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..8 {
            let world = &world;
            scope.spawn(move || {
                let (dir, mut before) = (world.at("dir"), format!("base{client}"));
                for round in 0.. {
                    let now = format!("moved{client}-{round}");
                    world.rename(format!("dir/{before}"), format!("dir/{now}")).unwrap();
                    let names = listed(world, &dir);
                    assert!(names.contains(&now.clone().into_bytes()), "{now} is missed");
                    let unmoved = names.iter().filter(|name| name.starts_with(b"base")).count();
                    assert!((72..80).contains(&unmoved), "{unmoved} that stay");
                    before = now;
                    if start.elapsed() > DURATION {
                        break;
                    }
                }
            });
        }
    });
}
