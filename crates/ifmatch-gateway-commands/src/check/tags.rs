//! Checks of the entity tags themselves (RFC 9110 §8.8.3).

use http::Method;
use ifmatch_gateway_config::error::Error;

use super::judge::{CheckFinding, CheckVerdict, ClientRisk};
use super::site::{CheckSite, SeenResource, strong_tag};

/// Number of writes right after one another. Their contents have the same length.
pub(super) const WRITES: usize = 8;

/// Checks that there is a strong tag, and that it changes with every write.
///
/// # Errors
/// Fails if the server doesn't respond, or can't store anything.
pub(super) async fn check(site: &CheckSite<'_>) -> Result<Vec<CheckFinding>, Error> {
    let key = site.key();
    let fields: &[_] = &[];
    site.write(&key, "content 0").await?;
    let first = site.get(&key).await?;
    let settled = site.settled(&key, false).await?;
    let head = SeenResource::of(site.send(&Method::HEAD, &key, fields, "").await?);
    let named = match (&first.tag, &settled.tag) {
        (Some(tag), _) => tag.clone(),
        (None, Some(tag)) => format!("{tag}, after a moment"),
        (None, None) => "none".to_owned(),
    };
    let exists = finding(
        "GET names a strong tag",
        ClientRisk::Unusable,
        CheckVerdict::safe_if(settled.tag.is_some()),
        named,
    );
    if settled.tag.is_none() {
        return Ok(vec![exists]);
    }
    let same = if head.tag == settled.tag {
        CheckVerdict::Yes
    } else {
        CheckVerdict::Differs
    };
    let shown = head.tag.unwrap_or_else(|| "none".to_owned());
    let of_head = CheckFinding {
        risk: None,
        ..finding("HEAD names the same tag", ClientRisk::Lost, same, shown)
    };

    // A weak tag is honest: it says that it may not have changed.
    let (mut tags, mut answered) = (vec![site.get(&key).await?.tag], Vec::new());
    for number in 1..=WRITES {
        let put = site
            .send(&Method::PUT, &key, fields, &format!("content {number}"))
            .await?;
        let read = site.get(&key).await?;
        answered.push((strong_tag(put.headers()), read.tag.clone()));
        tags.push(read.tag);
    }
    let mut strong: Vec<String> = tags.into_iter().flatten().collect();
    let count = strong.len();
    strong.sort_unstable();
    strong.dedup();
    let detail = format!("{} strong tags for {count} versions", strong.len());
    let changes = finding(
        "a write changes the tag",
        ClientRisk::Lost,
        CheckVerdict::safe_if(strong.len() == count),
        detail,
    );

    let told: Vec<_> = answered
        .into_iter()
        .filter(|(put, _)| put.is_some())
        .collect();
    let wrong = told.iter().filter(|(put, read)| put != read).count();
    let (verdict, detail) = match (told.len(), wrong) {
        (0, _) => (CheckVerdict::Unchecked, "PUT names no tag".to_owned()),
        (_, 0) => (CheckVerdict::Yes, "PUT names the tag".to_owned()),
        (count, wrong) => (CheckVerdict::No, format!("{wrong} of {count} differ")),
    };
    Ok(vec![
        exists,
        of_head,
        changes,
        finding(
            "a PUT returns the tag of the next GET",
            ClientRisk::Lost,
            verdict,
            detail,
        ),
    ])
}

/// Returns the result of a check of this section.
fn finding(name: &str, risk: ClientRisk, verdict: CheckVerdict, detail: String) -> CheckFinding {
    CheckFinding::new("8.8.3", name, risk, verdict, detail)
}
