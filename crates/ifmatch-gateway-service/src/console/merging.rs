//! A merge of two texts that began as the same one.

use similar::{MergeResolution, TextMerge};

use crate::text::Text;

/// Maximum number of lines of a text that is merged line by line.
const MOST_LINES: usize = 5_000;
/// Number of unchanged lines that are shown on each side of a change.
const CONTEXT: usize = 3;

/// A part of three texts.
#[derive(Debug)]
pub(super) struct MergeRegion {
    pub(super) kind: ChangeKind,
    base: Vec<String>,
    yours: Vec<String>,
    theirs: Vec<String>,
}

/// Who changed a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Same,
    Yours,
    Theirs,
    /// Both, in the same way.
    Both,
    /// Both, in different ways.
    Conflict,
}

/// Merges two texts line by line. Texts of very many lines conflict as a whole.
pub(super) fn merge(base: &str, yours: &str, theirs: &str) -> Vec<MergeRegion> {
    let lines = |text: &str| {
        text.split_inclusive('\n')
            .map(ToOwned::to_owned)
            .collect::<Vec<_>>()
    };
    let [base_lines, your_lines, their_lines] = [base, yours, theirs].map(lines);
    if [&base_lines, &your_lines, &their_lines]
        .iter()
        .any(|lines| lines.len() > MOST_LINES)
    {
        return vec![MergeRegion {
            kind: ChangeKind::Conflict,
            base: base_lines,
            yours: your_lines,
            theirs: their_lines,
        }];
    }
    let merged = TextMerge::from_lines(base, yours, theirs);
    let region = |region: &similar::MergeRegion| MergeRegion {
        kind: match region.resolution() {
            MergeResolution::Unchanged => ChangeKind::Same,
            MergeResolution::Ours => ChangeKind::Yours,
            MergeResolution::Theirs => ChangeKind::Theirs,
            MergeResolution::Both => ChangeKind::Both,
            _ => ChangeKind::Conflict,
        },
        base: base_lines[region.base_range()].to_vec(),
        yours: your_lines[region.ours_range()].to_vec(),
        theirs: their_lines[region.theirs_range()].to_vec(),
    };
    merged.regions().iter().map(region).collect()
}

/// Returns the merged text. `choice` names the side of each conflict, by its number, or returns `None` if it wasn't chosen.
pub(super) fn apply<'a>(
    regions: &[MergeRegion],
    choice: impl Fn(usize) -> Option<&'a str>,
) -> Option<String> {
    let (mut text, mut conflicts) = (String::new(), 0);
    for region in regions {
        let parts: &[&Vec<String>] = match region.kind {
            ChangeKind::Same | ChangeKind::Yours | ChangeKind::Both => &[&region.yours],
            ChangeKind::Theirs => &[&region.theirs],
            ChangeKind::Conflict => {
                conflicts += 1;
                match choice(conflicts - 1)? {
                    "yours" => &[&region.yours],
                    "theirs" => &[&region.theirs],
                    "both" => &[&region.theirs, &region.yours],
                    _ => return None,
                }
            }
        };
        for part in parts.iter().filter(|part| !part.is_empty()) {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.extend(part.iter().map(String::as_str));
        }
    }
    Some(text)
}

impl MergeRegion {
    pub(super) fn is_conflict(&self) -> bool {
        self.kind == ChangeKind::Conflict
    }

    pub(super) fn base(&self) -> String {
        shown(&self.base)
    }

    pub(super) fn yours(&self) -> String {
        shown(&self.yours)
    }

    pub(super) fn theirs(&self) -> String {
        shown(&self.theirs)
    }

    /// Returns the lines before those that are folded, the number of these, their text, and the lines after them.
    pub(super) fn folded(&self) -> (String, usize, String, String) {
        if self.yours.len() <= 3 * CONTEXT {
            return (self.yours(), 0, String::new(), String::new());
        }
        let (before, rest) = self.yours.split_at(CONTEXT);
        let (folded, after) = rest.split_at(rest.len() - CONTEXT);
        (shown(before), folded.len(), shown(folded), shown(after))
    }
}

/// Returns lines to show, with their control characters visible.
fn shown(lines: &[String]) -> String {
    let shown = |line: &String| Text(line.trim_end_matches('\n').to_owned()).to_string();
    lines
        .iter()
        .flat_map(|line| [shown(line), "\n".to_owned()])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(regions: &[MergeRegion]) -> Vec<ChangeKind> {
        regions.iter().map(|region| region.kind).collect()
    }

    /// Returns a text with a number on each line.
    fn text(numbers: impl Iterator<Item = usize>) -> String {
        numbers
            .flat_map(|number| [number.to_string(), "\n".to_owned()])
            .collect()
    }

    #[test]
    fn changes_of_different_lines_need_no_choice() {
        let regions = merge(
            "one\ntwo\nthree\n",
            "ONE\ntwo\nthree\n",
            "one\ntwo\nTHREE\n",
        );
        assert_eq!(
            kinds(&regions),
            [ChangeKind::Yours, ChangeKind::Same, ChangeKind::Theirs]
        );
        assert_eq!(
            apply(&regions, |_| None).as_deref(),
            Some("ONE\ntwo\nTHREE\n")
        );
        let same = merge("one\n", "two\n", "two\n");
        assert_eq!(
            (kinds(&same), apply(&same, |_| None).as_deref()),
            (vec![ChangeKind::Both], Some("two\n"))
        );
    }

    #[test]
    fn changes_of_the_same_line_are_chosen() {
        let regions = merge("a\nb\nc\nd\n", "a\nB1\nc\nD1", "a\nB2\nc\nD2\n");
        assert_eq!(
            kinds(&regions),
            [
                ChangeKind::Same,
                ChangeKind::Conflict,
                ChangeKind::Same,
                ChangeKind::Conflict
            ]
        );
        for (choices, expected) in [
            (["yours", "theirs"], Some("a\nB1\nc\nD2\n")),
            (["both", "yours"], Some("a\nB2\nB1\nc\nD1")),
            (["theirs", "both"], Some("a\nB2\nc\nD2\nD1")),
            (["theirs", ""], None),
        ] {
            assert_eq!(apply(&regions, |nr| Some(choices[nr])).as_deref(), expected);
        }
        assert_eq!(apply(&regions, |_| None), None);
    }

    #[test]
    fn a_merge_of_long_texts_loses_no_line() {
        let text = |line: fn(usize) -> usize, count| text((0..count).map(line));
        let base = text(|nr| nr, MOST_LINES);
        let scattered = text(|nr| nr * 7919 % MOST_LINES, MOST_LINES);
        let few = text(|nr| nr * nr % 7, MOST_LINES);
        let many = text(|nr| nr, MOST_LINES + 1);
        for (base, yours, theirs) in [
            (&base, &scattered, &few),
            (&few, &base, &scattered),
            (&many, &base, &few),
            (&String::new(), &base, &few),
        ] {
            let regions = merge(base, yours, theirs);
            let all = |lines: fn(&MergeRegion) -> &Vec<String>| {
                regions.iter().flat_map(lines).cloned().collect::<String>()
            };
            assert_eq!(
                (&all(|region| &region.base), &all(|region| &region.yours)),
                (base, yours)
            );
            assert_eq!(&all(|region| &region.theirs), theirs);
        }
    }

    #[test]
    fn unchanged_lines_are_folded() {
        let text = text(0..20);
        let (before, count, folded, after) = merge(&text, &text, &text)[0].folded();
        assert_eq!(
            (before.as_str(), count, after.as_str()),
            ("0\n1\n2\n", 14, "17\n18\n19\n")
        );
        assert!(folded.starts_with("3\n") && folded.ends_with("16\n"));
    }
}
