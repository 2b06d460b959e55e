//! Put Block, Put Block List and Get Block List.

use std::fmt::Write;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::azure::{IDS, blob, container};
use crate::http::{Http, Reply};
use crate::plain::reads::pattern;
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    suite.case("blocks: a list of more than 50,000", too_many);
    suite.case("blocks: 4 MiB in total, read by ranges", large);
}

fn stage(http: &mut Http<'_>, path: &str, id: usize, content: impl AsRef<[u8]>) -> Reply {
    let id = utf8_percent_encode(IDS[id], NON_ALPHANUMERIC);
    http.put(&format!("{path}?comp=block&blockid={id}"), &[], content)
}

fn commit(
    http: &mut Http<'_>,
    path: &str,
    fields: &[(&str, &str)],
    blocks: &[(&str, usize)],
) -> Reply {
    let mut list = "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>".to_owned();
    for (from, id) in blocks {
        let _ = write!(list, "<{from}>{}</{from}>", IDS[*id]);
    }
    http.put(
        &format!("{path}?comp=blocklist"),
        fields,
        list + "</BlockList>",
    )
}

fn too_many(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    stage(&mut http, &path, 1, "one").is(201);
    commit(&mut http, &path, &[], &vec![("Latest", 1); 50_001]).refused(400, "BlockListTooLong");
    assert_eq!(http.get(&path).is(200).text(), "first");
}

fn large(site: &Site) {
    let mut http = site.azure();
    let path = format!("{}/a", container(&mut http, site));
    let content = pattern(4 << 20);
    for (id, block) in content.chunks(1 << 20).enumerate() {
        stage(&mut http, &path, id, block).is(201);
    }
    commit(
        &mut http,
        &path,
        &[],
        &[("Latest", 0), ("Latest", 1), ("Latest", 2), ("Latest", 3)],
    )
    .is(201);
    let read = http.get(&path).is(200);
    assert!(read.body == content, "the content of the blocks, in order");
    let read = http
        .send("GET", &path, &[("x-ms-range", "bytes=1048570-1048585")], "")
        .is(206);
    assert_eq!(read.body, content[1_048_570..=1_048_585]);
}
