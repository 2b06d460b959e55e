//! Copies within the account.

use crate::azure::{blob, container};
use crate::races::{RACERS, race};
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    suite.case("azure copy: a longer blob, onto itself", onto_itself);
    suite.case(
        "azure copy: the source must be of the account, on this server",
        foreign,
    );
    for round in 0..3 {
        suite.case(
            format!("race: twenty copy to a new name, round {round}"),
            race_to_create,
        );
        suite.case(
            format!("race: copies while the source is replaced, round {round}"),
            race_with_writers,
        );
    }
}

fn onto_itself(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let content = (0..300_000)
        .map(|number: u32| number.to_string())
        .collect::<Vec<_>>()
        .join(",");
    let tag = http.upload(&path, &[], &content).is(201).etag().to_owned();
    let url = site.url(&path);
    let fields = [
        ("x-ms-copy-source", &*url),
        ("if-match", &tag),
        ("x-ms-meta-a", "1"),
    ];
    let copied = http.put(&path, &fields, "").is(202).etag().to_owned();
    let read = http.get(&path).is(200);
    assert!(read.text() == content && copied != tag, "other bytes");
    assert_eq!((read.etag(), read.field("x-ms-meta-a")), (&*copied, "1"));
}

fn foreign(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let own = site.url(&path);
    let elsewhere = own.replacen("http://", "http://x", 1);
    let account = own.replacen("/devstoreaccount1/", "/devstoreaccount2/", 1);
    for source in [elsewhere, account] {
        http.put(&path, &[("x-ms-copy-source", &source)], "")
            .refused(400, "CopyAcrossAccountsNotSupported");
    }
    let snapshot = format!("{own}?snapshot=2020-09-13T12:26:40.0000000Z");
    http.put(&path, &[("x-ms-copy-source", &snapshot)], "")
        .refused(404, "BlobNotFound");
    let version = format!("{own}?versionid=1");
    http.put(&path, &[("x-ms-copy-source", &version)], "")
        .refused(400, "InvalidHeaderValue");
    assert_eq!(http.get(&path).is(200).text(), "first");
}

fn race_to_create(site: &Site) {
    let own = container(&mut site.azure(), site);
    let target = format!("{own}/target");
    for racer in 0..RACERS {
        site.azure()
            .upload(&format!("{own}/{racer}"), &[], format!("by {racer}"))
            .is(201);
    }
    let copy = |racer: usize| {
        let url = site.url(&format!("{own}/{racer}"));
        site.azure().put(
            &target,
            &[("x-ms-copy-source", &*url), ("if-none-match", "*")],
            "",
        )
    };
    let replies = race(RACERS, copy);
    let won: Vec<usize> = (0..RACERS)
        .filter(|racer| replies[*racer].status == 202)
        .collect();
    let read = site.azure().get(&target).is(200);
    assert_eq!(won.len(), 1, "winners: {won:?}");
    assert_eq!(
        (read.text(), read.etag()),
        (&*format!("by {}", won[0]), replies[won[0]].etag())
    );
    if let Some(reply) = replies
        .iter()
        .find(|reply| reply.status != 202 && !reply.changed_nothing())
    {
        reply.fail("202, or a rejection");
    }
}

/// A copy under a source condition has the bytes of the version that the condition names.
fn race_with_writers(site: &Site) {
    let own = container(&mut site.azure(), site);
    let source = format!("{own}/source");
    let tag = site
        .azure()
        .upload(&source, &[], "first")
        .is(201)
        .etag()
        .to_owned();
    let url = site.url(&source);
    race(RACERS, |racer| {
        let (mut http, target) = (site.azure(), format!("{own}/{racer}"));
        let fields = [("x-ms-copy-source", &*url), ("x-ms-source-if-match", &*tag)];
        for _ in 0..10 {
            if racer == 0 {
                http.upload(&source, &[], "another").is(201);
                continue;
            }
            let reply = http.put(&target, &fields, "");
            if reply.status == 202 {
                assert_eq!(http.get(&target).is(200).text(), "first");
            } else if !reply.changed_nothing() {
                reply.fail("202, or a rejection");
            }
        }
    });
    site.azure()
        .put(
            &format!("{own}/late"),
            &[("x-ms-copy-source", &*url), ("x-ms-source-if-match", &*tag)],
            "",
        )
        .refused(412, "SourceConditionNotMet");
}
