//! Pieces in any order.

use acetate::validation::{Draft, MAX_DRAFT_BYTES, MAX_LINE_BYTES, Validator};
use acetate::vfs::FsError;
use proptest::prelude::*;

/// Writes a piece, and says what the lines that it completes are refused for.
#[track_caller]
fn write(draft: &mut Draft, offset: u64, data: &[u8]) -> Result<(), Option<u64>> {
    let piece = draft.write(offset, data).unwrap();
    let Some(lines) = draft.arrived_lines(&piece) else { return Ok(()) };
    let checked = Validator::jsonl().check_syntax(lines.bytes());
    checked.map_err(|fault| lines.placed(fault).line)
}

#[test]
fn a_line_is_checked_when_all_of_it_has_arrived() {
    let mut draft = Draft::default();
    draft.set_size(0).unwrap();
    assert_eq!(write(&mut draft, 0, b"{\"a\""), Ok(()));
    assert_eq!(write(&mut draft, 4, b": 1}\n[1,"), Ok(()));
    assert_eq!(write(&mut draft, 12, b"]\n"), Err(Some(2)));
}

#[test]
fn pieces_out_of_order_wait_for_the_gap_to_be_filled() {
    let mut draft = Draft::over(Vec::new());
    assert_eq!(write(&mut draft, 6, b"bad}\n{}\n"), Ok(()));
    assert_eq!(write(&mut draft, 3, b"{},"), Ok(()));
    assert_eq!(write(&mut draft, 0, b"{}\n"), Err(Some(2)));
    // A whole line behind a gap is bad whatever comes before it; which one it is, nobody knows.
    let mut draft = Draft::over(Vec::new());
    assert_eq!(write(&mut draft, 5, b"1]\nnot json\n"), Err(None));
    let mut draft = Draft::over(Vec::new());
    assert_eq!(write(&mut draft, 3, b"[1,2]\n"), Ok(()));
    assert_eq!(write(&mut draft, 0, b"{}\n"), Ok(()));
    assert_eq!(draft.content(), b"{}\n[1,2]\n");
}

#[test]
fn what_is_appended_is_checked_at_once() {
    let mut draft = Draft::over(b"{}\n".to_vec());
    assert_eq!(write(&mut draft, 3, b"[]\n"), Ok(()));
    assert_eq!(write(&mut draft, 6, b"x\n"), Err(Some(3)));
    // The old last line is not ended: the new line is none by itself.
    let mut draft = Draft::over(b"[1,".to_vec());
    assert_eq!(write(&mut draft, 3, b"2]\n{}\n"), Ok(()));
    assert_eq!(write(&mut draft, 9, b"x\n"), Err(Some(3)));
}

#[test]
fn what_is_written_over_old_content_may_have_more_to_come() {
    let mut draft = Draft::over(b"[111111]\n[222222]\n".to_vec());
    assert_eq!(write(&mut draft, 0, b"[1,"), Ok(()));
    assert_eq!(write(&mut draft, 3, b"333]]\n[3"), Err(Some(1)));
    let mut draft = Draft::over(b"[111111]\n[222222]\n".to_vec());
    assert_eq!(write(&mut draft, 9, b"222222"), Ok(()), "a part of an old line");
}

#[test]
fn a_cut_begins_anew() {
    let mut draft = Draft::over(b"{}\n{}\n".to_vec());
    draft.set_size(0).unwrap();
    assert_eq!(write(&mut draft, 0, b"x\n"), Err(Some(1)));
    let mut draft = Draft::over(b"{}\n{}\n".to_vec());
    draft.set_size(3).unwrap();
    assert_eq!(draft.content(), b"{}\n");
    assert_eq!(write(&mut draft, 3, b"x\n"), Err(Some(2)));
    draft.set_size(8).unwrap();
    assert_eq!(draft.content(), b"{}\nx\n\0\0\0");
}

#[test]
fn a_line_without_an_end_is_refused_at_its_bound() {
    let mut draft = Draft::over(Vec::new());
    assert_eq!(write(&mut draft, 0, &vec![b' '; MAX_LINE_BYTES]), Ok(()));
    assert_eq!(write(&mut draft, MAX_LINE_BYTES as u64, b"  "), Err(Some(1)));
}

#[test]
fn a_draft_has_a_bound() {
    let mut draft = Draft::over(b"{}\n".to_vec());
    assert_eq!(draft.write(MAX_DRAFT_BYTES, b"x"), Err(FsError::TooLarge));
    assert_eq!(draft.write(u64::MAX, b"x"), Err(FsError::TooLarge));
    assert_eq!(draft.set_size(MAX_DRAFT_BYTES + 1), Err(FsError::TooLarge));
    assert_eq!(draft.content(), b"{}\n");
    draft.write(MAX_DRAFT_BYTES - 1, b"x").unwrap();
    assert_eq!(draft.content().len() as u64, MAX_DRAFT_BYTES);
}

#[test]
fn any_number_of_gaps_is_written() {
    let mut draft = Draft::over(Vec::new());
    for at in 0..2000 {
        assert_eq!(write(&mut draft, at * 4 + 1, b"x\n"), Ok(()));
    }
    assert_eq!(draft.content().len(), 7999);
}

proptest! {
    /// Good content is never refused, bad content is by the time that all of it is there, if not
    /// before; in whatever order, and with whatever repetitions, it arrives.
    #[test]
    fn the_order_of_pieces_does_not_matter(
        lines in prop::collection::vec(prop_oneof![
            8 => Just("{}"), 4 => Just("[1, 2]"), 2 => Just(""), 1 => Just("x"),
        ], 1..12),
        cuts in prop::collection::vec(0usize..60, 0..6),
        order in any::<prop::sample::Index>(),
        keys in prop::collection::vec(any::<u32>(), 8),
    ) {
        let content = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let content = content.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(content.len())).collect();
        cuts.extend([0, content.len()]);
        cuts.sort_unstable();
        let mut pieces: Vec<_> = cuts.windows(2).map(|cut| cut[0]..cut[1]).collect();
        pieces.push(pieces[order.index(pieces.len())].clone());
        let mut at = 0;
        pieces.sort_by_key(|_| { at += 1; keys[at % 8] });
        let mut draft = Draft::over(Vec::new());
        let mut first = Ok(());
        for piece in pieces {
            let outcome = write(&mut draft, piece.start as u64, &content[piece]);
            first = first.and(outcome);
        }
        prop_assert_eq!(draft.content(), content);
        let bad = lines.iter().position(|line| *line == "x");
        prop_assert_eq!(first.is_err(), bad.is_some());
        prop_assert_eq!(Validator::jsonl().check_syntax(content).is_err(), bad.is_some());
    }
}
