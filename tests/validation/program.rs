//! Programs that decide.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use acetate::validation::{ValidatorProgram, Violation};

fn shell(script: &str, timeout: Duration) -> ValidatorProgram {
    let argv = ["/bin/sh", "-c", script].map(OsString::from).to_vec();
    ValidatorProgram::new(argv, timeout).unwrap()
}

async fn ask(script: &str, content: &[u8]) -> Result<(), Violation> {
    shell(script, Duration::from_secs(20)).check(b"/a/b c.txt", content).await
}

async fn reason(script: &str) -> String {
    ask(script, b"content").await.unwrap_err().reason
}

#[tokio::test]
async fn a_program_reads_the_content_and_decides() {
    assert_eq!(ask("grep -q good", b"something good\n").await, Ok(()));
    let refused = ask("grep -q good || { echo 'no good'; exit 3; }", b"bad\n").await;
    assert_eq!(refused, Err(Violation { line: None, reason: "no good".to_owned() }));
}

#[tokio::test]
async fn it_is_told_the_path_and_reads_no_shell_words() {
    assert_eq!(reason("printf %s \"$ACETATE_GUARDED_PATH\" >&2; false").await, "/a/b c.txt");
    let argv = ["/bin/echo", "$HOME; false"].map(OsString::from).to_vec();
    let echo = ValidatorProgram::new(argv, Duration::from_secs(20)).unwrap();
    assert_eq!(echo.check(b"/a", b"").await, Ok(()));
}

#[tokio::test]
async fn the_reason_is_its_first_line_or_its_end() {
    assert_eq!(reason("echo out; echo; echo; false").await, "out");
    assert_eq!(reason("echo out; echo err >&2; exit 1").await, "err");
    assert_eq!(reason("printf '\\n  \\033[1mbold\\n' >&2; exit 1").await, "\\u{1b}[1mbold");
    assert_eq!(reason("exit 7").await, "`/bin/sh` exited with 7");
    assert_eq!(reason("kill -TERM $$").await, "`/bin/sh` was ended by signal 15");
}

#[tokio::test]
async fn one_that_takes_too_long_is_killed_with_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let alive = dir.path().join("alive");
    let script = format!("(sleep 2; touch {0}) & sleep 60 & wait", alive.display());
    let start = Instant::now();
    let program = shell(&script, Duration::from_millis(200));
    let refused = program.check(b"/a", b"").await.unwrap_err();
    assert_eq!(refused.reason, "`/bin/sh` took longer than 200ms");
    assert!(start.elapsed() < Duration::from_secs(10));
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(!alive.exists(), "its child went on");
}

#[tokio::test]
async fn one_that_closes_its_pipes_is_killed_too() {
    let program = shell("exec <&- >&- 2>&-; sleep 60", Duration::from_millis(200));
    let start = Instant::now();
    assert!(program.check(b"/a", b"x").await.is_err());
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn it_need_not_read_and_may_say_much() {
    let large = vec![b'x'; 3 << 20];
    assert_eq!(ask("true", &large).await, Ok(()));
    assert_eq!(ask("cat >/dev/null; head -c 3000000 /dev/zero", &large).await, Ok(()));
    // More than the pipes hold, both ways at once.
    assert_eq!(ask("cat", &large).await, Ok(()));
    let refused = ask("cat >&2; false", &large).await.unwrap_err();
    assert!(refused.reason.starts_with("xxx") && refused.reason.ends_with('…'));
}

#[tokio::test]
async fn a_child_that_keeps_the_pipe_open_is_not_waited_for() {
    let start = Instant::now();
    assert_eq!(ask("sleep 20 & echo done; exit 0", b"").await, Ok(()));
    assert_eq!(reason("sleep 20 & echo no; exit 1").await, "no");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn one_that_cannot_be_run_refuses() {
    let program = ValidatorProgram::new(vec!["/no/such".into()], Duration::from_secs(1)).unwrap();
    let refused = program.check(b"/a", b"").await.unwrap_err();
    assert!(refused.reason.starts_with("`/no/such` cannot be run: No such file"), "{refused}");
    assert!(ValidatorProgram::new(Vec::new(), Duration::from_secs(1)).is_none());
    assert!(ValidatorProgram::new(vec!["".into()], Duration::from_secs(1)).is_none());
}
