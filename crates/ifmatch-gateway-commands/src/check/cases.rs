//! The cases of `cases.txt`: one request each, on a resource in a known state.

use std::time::Duration;

use http::{HeaderName, Method, StatusCode};
use ifmatch_core::date::HttpDate;
use ifmatch_gateway_config::error::Error;

use super::judge::{CaseAnswer, CheckFinding, CheckVerdict, ClientRisk, judge, unanswered};
use super::site::{ATTEMPTS, CheckSite, SeenResource};

/// The first content. All contents have the same length, so a tag of date and length can't tell them apart.
const OLD: &str = "abcdefghijklmnopqrstuvwxyz";
/// The current content.
pub(super) const NEW: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// The content that a case writes.
pub(super) const WRITTEN: &str = "0123456789ABCDEFGHIJKLMNOP";
/// The content that a case writes as a part.
pub(super) const PART: &str = "01234";
/// Distance of `{before}` and `{after}` from the date.
const HOUR: Duration = Duration::from_hours(1);

/// A row of the table, for one method.
pub(super) struct CheckCase {
    pub(super) section: &'static str,
    pub(super) name: String,
    /// The consequence of another response.
    pub(super) risk: Option<ClientRisk>,
    pub(super) method: Method,
    /// `true` if the resource exists.
    present: bool,
    /// The header fields, with placeholders.
    fields: Vec<(HeaderName, &'static str)>,
    pub(super) expected: ExpectedResponse,
}

/// The response that the RFC requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExpectedResponse {
    /// The method's success.
    Done,
    /// 200 with the whole content.
    Whole,
    /// 206 with these ranges.
    Ranges(Vec<(usize, usize)>),
    /// This status.
    Status(StatusCode),
    /// An error, or a change of nothing but the part.
    Part,
}

/// A resource in its second version.
struct CaseResource {
    key: String,
    /// The tag of its first version.
    old: Option<String>,
}

/// Parses the table.
///
/// # Errors
/// If a row is malformed.
pub(super) fn all() -> Result<Vec<CheckCase>, Error> {
    let mut cases = Vec::new();
    for row in include_str!("cases.txt")
        .lines()
        .filter(|row| !row.is_empty() && !row.starts_with('#'))
    {
        let case = parse(row).ok_or_else(|| Error::runtime(format!("malformed case: {row}")))?;
        cases.extend(case);
    }
    Ok(cases)
}

/// Parses a row into a case for each method, or returns `None` if it is malformed.
fn parse(row: &'static str) -> Option<Vec<CheckCase>> {
    let columns: Vec<&'static str> = row.split(" | ").map(str::trim).collect();
    let [section, risk, methods, state, fields, expected, name] = columns[..] else {
        return None;
    };
    let risk = match risk {
        "-" => None,
        other => Some(ClientRisk::parse(other)?),
    };
    let present = match state {
        "present" => true,
        "absent" => false,
        _ => return None,
    };
    let field = |field: &'static str| {
        let (name, value) = field.split_once(": ")?;
        Some((name.trim().parse::<HeaderName>().ok()?, value.trim()))
    };
    let fields: Vec<_> = fields.split(";;").map(field).collect::<Option<_>>()?;
    let expected = ExpectedResponse::parse(expected)?;
    let case = |method: &str| {
        let name = name.replace("{method}", method);
        let (fields, expected) = (fields.clone(), expected.clone());
        Some(CheckCase {
            section,
            name,
            risk,
            method: method.parse().ok()?,
            present,
            fields,
            expected,
        })
    };
    methods.split(' ').map(case).collect()
}

impl ExpectedResponse {
    fn parse(text: &str) -> Option<Self> {
        let range = |range: &str| {
            let (first, last) = range.split_once('-')?;
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        Some(match text {
            "done" => Self::Done,
            "whole" => Self::Whole,
            "part" => Self::Part,
            ranges if ranges.contains('-') => {
                Self::Ranges(ranges.split(' ').map(range).collect::<Option<_>>()?)
            }
            status => Self::Status(status.parse().ok()?),
        })
    }
}

/// Sends the request of each case, and judges the response.
///
/// # Errors
/// If the server doesn't respond, or can't store anything.
pub(super) async fn check(
    site: &CheckSite<'_>,
    cases: &[CheckCase],
) -> Result<Vec<CheckFinding>, Error> {
    let writes = |case: &&CheckCase| case.present && !is_read(&case.method);
    let resources = prepare(site, 1 + cases.iter().filter(writes).count()).await?;
    let mut resources = resources.iter();
    let Some(read) = resources.next() else {
        return Ok(Vec::new());
    };
    let mut findings = Vec::new();
    for case in cases {
        let absent = CaseResource {
            key: site.key(),
            old: None,
        };
        let resource = match case {
            CheckCase { present: false, .. } => &absent,
            CheckCase { method, .. } if is_read(method) => read,
            _ => resources.next().unwrap_or(read),
        };
        findings.push(case.run(site, resource).await?);
    }
    Ok(findings)
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Writes resources, each twice.
async fn prepare(site: &CheckSite<'_>, count: usize) -> Result<Vec<CaseResource>, Error> {
    let keys: Vec<String> = (0..count).map(|_| site.key()).collect();
    for key in &keys {
        site.write(key, OLD).await?;
    }
    if let Some(last) = keys.last() {
        site.settled(last, false).await?;
    }
    let mut resources = Vec::new();
    for key in keys {
        let old = site.get(&key).await?.tag;
        site.write(&key, NEW).await?;
        resources.push(CaseResource { key, old });
    }
    if let Some(last) = resources.last() {
        site.settled(&last.key, true).await?;
    }
    Ok(resources)
}

impl CheckCase {
    /// Sends the request to a resource, and judges the response and what it has changed.
    async fn run(
        &self,
        site: &CheckSite<'_>,
        resource: &CaseResource,
    ) -> Result<CheckFinding, Error> {
        let before = site.get(&resource.key).await?;
        let fields: Vec<_> = self
            .fields
            .iter()
            .map(|(name, value)| Some((name.clone(), resource.fill(value, &before)?)))
            .collect();
        let Some(fields) = fields.into_iter().collect::<Option<Vec<_>>>() else {
            return Ok(self.finding(
                CheckVerdict::Unchecked,
                "the server sends no strong tag, or no date".to_owned(),
            ));
        };
        let body = match (&self.method, &self.expected) {
            (&Method::PUT, ExpectedResponse::Part) => PART,
            (&Method::PUT, _) => WRITTEN,
            _ => "",
        };
        let mut attempts = 0;
        let (response, after) = loop {
            attempts += 1;
            let sent = site
                .send_once(&self.method, &resource.key, &fields, body)
                .await;
            let after = if is_read(&self.method) {
                None
            } else {
                Some(site.get(&resource.key).await?)
            };
            // A second write would find the first one's version.
            let may_repeat = after.as_ref().is_none_or(|after| before.is_same(after));
            match sent {
                Ok(response) => break (response, after),
                Err(_) if may_repeat && attempts < ATTEMPTS => {}
                Err(error) => {
                    let error = error.to_string();
                    let why = error.rsplit(": ").next().unwrap_or_default();
                    let (verdict, detail) = unanswered(self, &before, after.as_ref(), why);
                    return Ok(self.finding(verdict, detail));
                }
            }
        };
        let (verdict, detail) = judge(
            self,
            &CaseAnswer {
                response,
                before,
                after,
            },
        );
        Ok(self.finding(verdict, detail))
    }

    fn finding(&self, verdict: CheckVerdict, detail: String) -> CheckFinding {
        CheckFinding {
            section: self.section,
            name: self.name.clone(),
            risk: self.risk,
            verdict,
            detail,
        }
    }
}

impl CaseResource {
    /// Substitutes the placeholders in the value of a header field. Returns `None` without the validator that one stands for.
    fn fill(&self, value: &str, seen: &SeenResource) -> Option<String> {
        let mut text = value.to_owned();
        let mut put = |name: &str, with: Option<String>| {
            if text.contains(name) {
                text = text.replace(name, &with?);
            }
            Some(())
        };
        let seconds = i64::try_from(HOUR.as_secs()).ok()?;
        let date = |shift: i64| {
            seen.date
                .map(|date| HttpDate::from_unix(date.unix() + shift).to_string())
        };
        put("{tag}", seen.tag.clone())?;
        put("{old}", self.old.clone())?;
        put("{weak}", seen.tag.as_ref().map(|tag| format!("W/{tag}")))?;
        put(
            "{bare}",
            seen.tag
                .as_ref()
                .map(|tag| tag.trim_matches('"').to_owned()),
        )?;
        put("{date}", date(0))?;
        put("{before}", date(-seconds))?;
        put("{after}", date(seconds))?;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_condition_and_names_each_case_once() {
        let cases = all().unwrap();
        for section in [
            "13.1.1", "13.1.2", "13.1.3", "13.1.4", "13.1.5", "13.2.2", "14.2", "15.5.17",
        ] {
            assert!(
                cases.iter().any(|case| case.section == section),
                "{section}"
            );
        }
        let mut names: Vec<_> = cases
            .iter()
            .map(|case| (case.section, &case.name))
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), cases.len());
    }

    #[test]
    fn malformed_rows_are_found() {
        assert!(parse("1 | - | GET | present | a: b | whole | name").is_some());
        for row in [
            "1 | - | GET | present | a: b | whole",
            "1 | much | GET | present | a: b | whole | name",
            "1 | - | GET | there | a: b | whole | name",
            "1 | - | GET | present | a | whole | name",
            "1 | - | GET | present | a: b | all | name",
        ] {
            assert!(parse(row).is_none(), "{row}");
        }
    }
}
