//! Lease ids in every format of .NET's `Guid`.

use ifmatch_core::lease::LeaseId;

const N: &str = "936da01f9abd4d9d80c702af85c822a8";
const D: &str = "936da01f-9abd-4d9d-80c7-02af85c822a8";

#[test]
fn all_formats_of_a_guid_are_the_same_id() {
    let id: LeaseId = D.parse().unwrap();
    let x = "{0x936da01f,0x9abd,0x4d9d,{0x80,0xc7,0x02,0xaf,0x85,0xc8,0x22,0xa8}}";
    let short = "{0x936da01f,0x9abd,0x4d9d,{0x80,0xc7,0x2,0xaf,0x85,0xc8,0x22,0xa8}}";
    for text in [
        N.to_owned(),
        D.to_owned(),
        format!("{{{D}}}"),
        format!("({D})"),
        x.to_owned(),
        short.to_owned(),
    ] {
        for text in [text.clone(), text.to_uppercase()] {
            assert_eq!(text.parse(), Ok(id), "{text}");
        }
    }
    assert_eq!(id.to_string(), D);
    assert_eq!(format!("{id:?}"), D);
    let zero: LeaseId = "{0x0,0x0,0x0,{0x0,0x0,0x0,0x0,0x0,0x0,0x0,0x0}}"
        .parse()
        .unwrap();
    assert_eq!(zero.to_string(), "00000000-0000-0000-0000-000000000000");
}

#[test]
fn other_formats_are_rejected() {
    let wrong = [
        "",
        "1",
        "lease",
        "936da01f9abd4d9d80c702af85c822a",
        "936da01f9abd4d9d80c702af85c822a88",
        "936da01f9abd4d9d80c702af85c822ag",
        "936da01f-9abd-4d9d-80c702af-85c822a8",
        "936da01f9abd-4d9d-80c7-02af85c822a8-",
        "{936da01f-9abd-4d9d-80c7-02af85c822a8)",
        "{936da01f9abd4d9d80c702af85c822a8}",
        "[936da01f-9abd-4d9d-80c7-02af85c822a8]",
        " 936da01f-9abd-4d9d-80c7-02af85c822a8",
        "936da01f-9abd-4d9d-80c7-02af85c822a8\0",
        "{0x936da01f,0x9abd,0x4d9d,{0x80,0xc7,0x02,0xaf,0x85,0xc8,0x22}}",
        "{0x936da01f,0x9abd,0x4d9d,{0x80,0xc7,0x02,0xaf,0x85,0xc8,0x22,0xa8,0xff}}",
        "{0x936da01f0,0x9abd,0x4d9d,{0x80,0xc7,0x02,0xaf,0x85,0xc8,0x22,0xa8}}",
        "{936da01f,0x9abd,0x4d9d,{0x80,0xc7,0x02,0xaf,0x85,0xc8,0x22,0xa8}}",
        "{0x,0x9abd,0x4d9d,{0x80,0xc7,0x02,0xaf,0x85,0xc8,0x22,0xa8}}",
        "{0x936da01f,0x9abd,0x4d9d,{0x80,0xc7,0x02,0xaf,0x85,0xc8,0x22,0xa8}",
        "936da01f9abd4d9d80c702af85c822\u{e9}",
        "936da01f-9abd-4d9d-80c7-02af85c8\u{fffd}a",
    ];
    for text in wrong {
        assert!(text.parse::<LeaseId>().is_err(), "{text:?}");
    }
}

#[test]
fn random_bytes_become_a_random_guid() {
    let id = LeaseId::from_random([0xff; 16]).to_string();
    assert_eq!(id, "ffffffff-ffff-4fff-bfff-ffffffffffff");
    assert_eq!(
        LeaseId::from_random([0; 16]).to_string(),
        "00000000-0000-4000-8000-000000000000"
    );
}
