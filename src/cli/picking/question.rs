//! Asks about the hunks of one file, or about one change without hunks.

use super::shown::Screen;
use super::{Verb, asking};
use crate::cli::error::CliError;

/// A list of items that can be chosen.
pub(super) trait Choices {
    /// The number of items.
    fn count(&self) -> usize;
    /// The noun for an item in a question.
    fn noun(&self, at: usize) -> &'static str;
    /// Shows an item.
    fn show(&self, at: usize, screen: &Screen);
    /// An item on one line.
    fn line(&self, at: usize) -> String;
    /// Whether an item contains a text.
    fn has_text(&self, at: usize, text: &str) -> bool;
    /// Splits an item; returns the number of parts.
    fn split(&mut self, at: usize) -> usize;
    /// Whether an item can be split.
    fn can_split(&self, at: usize) -> bool;
}

/// How the questions about a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuestionEnd {
    /// The next file follows.
    Next,
    /// The user quit: no further file follows.
    Quit,
}

/// The state of a file's questions.
struct Round<'a> {
    choices: &'a mut dyn Choices,
    /// The decisions so far.
    picks: Vec<Option<bool>>,
    at: usize,
}

/// Asks until every item is decided; returns which are chosen.
pub(super) fn ask(
    choices: &mut dyn Choices,
    verb: Verb,
    screen: &Screen,
) -> Result<(Vec<bool>, QuestionEnd), CliError> {
    let picks = vec![None; choices.count()];
    let mut round = Round { choices, picks, at: 0 };
    let mut end = QuestionEnd::Next;
    let mut is_shown = false;
    while round.picks.iter().any(Option::is_none) {
        if !is_shown {
            round.choices.show(round.at, screen);
        }
        is_shown = true;
        let (at, all) = (round.at, round.choices.count());
        let noun = round.choices.noun(at);
        let keys = round.keys();
        let question = format!("({}/{all}) {} this {noun} [{keys},?]? ", at + 1, verb.as_str());
        let Some(answer) = asking::answer(&screen.prompt(&question))? else {
            end = QuestionEnd::Quit;
            break;
        };
        match round.answer(&answer, verb, screen)? {
            QuestionStep::Show => is_shown = false,
            QuestionStep::Stay => {}
            QuestionStep::End(ended) => {
                end = ended;
                break;
            }
        }
    }
    Ok((round.picks.into_iter().map(|pick| pick == Some(true)).collect(), end))
}

enum QuestionStep {
    Show,
    Stay,
    End(QuestionEnd),
}

impl Round<'_> {
    /// The keys of the possible answers.
    fn keys(&self) -> String {
        let mut keys = vec!["y", "n", "q", "a", "d"];
        let is_open = |at: usize| self.picks[at].is_none();
        let (at, all) = (self.at, self.picks.len());
        keys.extend((at + 1..all).any(is_open).then_some("j"));
        keys.extend((at + 1 < all).then_some("J"));
        keys.extend((0..at).any(is_open).then_some("k"));
        keys.extend((at > 0).then_some("K"));
        if all > 1 {
            keys.extend(["g", "/"]);
        }
        keys.extend(self.choices.can_split(at).then_some("s"));
        keys.join(",")
    }

    fn answer(
        &mut self,
        answer: &str,
        verb: Verb,
        screen: &Screen,
    ) -> Result<QuestionStep, CliError> {
        let answer = answer.trim();
        let (at, all) = (self.at, self.picks.len());
        let is_open = |at: &usize| self.picks[*at].is_none();
        let Some(key) = answer.chars().next() else { return Ok(QuestionStep::Stay) };
        if !self.keys().contains(key) && key != '?' {
            screen.line(&format!("`{key}` is not an answer here"));
            screen.line(&self.help(verb));
            return Ok(QuestionStep::Stay);
        }
        let rest = answer[key.len_utf8()..].trim();
        let to = match key {
            'y' | 'n' => {
                self.picks[at] = Some(key == 'y');
                self.next_open()
            }
            'a' | 'd' => {
                self.picks[at..].iter_mut().for_each(|pick| {
                    pick.get_or_insert(key == 'a');
                });
                self.picks[at] = Some(key == 'a');
                self.next_open()
            }
            'q' => return Ok(QuestionStep::End(QuestionEnd::Quit)),
            'j' => (at + 1..all).find(is_open),
            'J' => Some(at + 1),
            'k' => (0..at).rev().find(is_open),
            'K' => at.checked_sub(1),
            'g' => return self.go_to(rest, screen),
            '/' => return self.search(rest, screen),
            's' => {
                let parts = self.choices.split(at);
                let open = std::iter::repeat_n(None, parts);
                self.picks.splice(at..=at, open);
                screen.line(&format!("Split into {parts} hunks."));
                Some(at)
            }
            _ => {
                screen.line(&self.help(verb));
                return Ok(QuestionStep::Stay);
            }
        };
        self.at = to.unwrap_or(at);
        Ok(QuestionStep::Show)
    }

    /// The next undecided item after the current one, wrapping around.
    fn next_open(&self) -> Option<usize> {
        let all = self.picks.len();
        (self.at + 1..all).chain(0..self.at).find(|at| self.picks[*at].is_none())
    }

    fn go_to(&mut self, given: &str, screen: &Screen) -> Result<QuestionStep, CliError> {
        let given = match given {
            "" => {
                for at in 0..self.picks.len() {
                    let pick = match self.picks[at] {
                        Some(true) => '+',
                        Some(false) => '-',
                        None => ' ',
                    };
                    screen.line(&format!("{pick}{:2}: {}", at + 1, self.choices.line(at)));
                }
                asking::answer(&screen.prompt("go to which hunk? "))?.unwrap_or_default()
            }
            given => given.to_owned(),
        };
        let number = given.trim().parse().ok().filter(|n| (1..=self.picks.len()).contains(n));
        let Some(number) = number else {
            screen.line(&format!("{}: no such hunk", given.trim()));
            return Ok(QuestionStep::Stay);
        };
        self.at = number - 1;
        Ok(QuestionStep::Show)
    }

    fn search(&mut self, given: &str, screen: &Screen) -> Result<QuestionStep, CliError> {
        let text = match given {
            "" => asking::answer(&screen.prompt("search for text? "))?.unwrap_or_default(),
            given => given.to_owned(),
        };
        let text = text.trim_end_matches(['\r', '\n']);
        let order = (self.at + 1..self.picks.len()).chain(0..=self.at);
        let found = order.into_iter().find(|at| self.choices.has_text(*at, text));
        let Some(found) = found.filter(|_| !text.is_empty()) else {
            screen.line("No hunk matches the given text.");
            return Ok(QuestionStep::Stay);
        };
        self.at = found;
        Ok(QuestionStep::Show)
    }

    fn help(&self, verb: Verb) -> String {
        let (verb, noun) = (verb.lower(), self.choices.noun(self.at));
        let keys = self.keys();
        let mut lines = vec![
            format!("y - {verb} this {noun}"),
            format!("n - do not {verb} this {noun}"),
            format!("q - quit; do not {verb} this {noun} or any of the remaining ones"),
            format!("a - {verb} this {noun} and all later ones in the file"),
            format!("d - do not {verb} this {noun} or any of the later ones in the file"),
        ];
        let more = [
            ("j", "leave this hunk undecided, see next undecided hunk"),
            ("J", "leave this hunk undecided, see next hunk"),
            ("k", "leave this hunk undecided, see previous undecided hunk"),
            ("K", "leave this hunk undecided, see previous hunk"),
            ("g", "select a hunk to go to"),
            ("/", "search for a hunk with a text"),
            ("s", "split the current hunk into smaller hunks"),
        ];
        let more = more.into_iter().filter(|(key, _)| keys.contains(key));
        lines.extend(more.map(|(key, what)| format!("{key} - {what}")));
        lines.push("? - print help".to_owned());
        lines.join("\n")
    }
}
