//! Valid documents, and random combinations of their pieces.

use proptest::prelude::*;

use super::*;

fn written(blocks: &[(From, BlockId)]) -> String {
    let block = |(from, id): &(From, BlockId)| format!("<{from:?}>{}</{from:?}>", id.to_base64());
    format!("<BlockList>{}</BlockList>", blocks.iter().map(block).collect::<String>())
}

fn read(text: &str) -> Option<Vec<(From, BlockId)>> {
    parse(text.as_bytes()).ok()
}

#[test]
fn parses_documents_of_the_sdks() {
    let id = |text: &str| BlockId::from_base64(text).expect("an id");
    let expected = vec![(From::Latest, id("MDAw")), (From::Committed, id("MDAx")), (From::Uncommitted, id("MDAy"))];
    let compact = "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?><BlockList><Latest>MDAw</Latest>\
                   <Committed>MDAx</Committed><Uncommitted>MDAy</Uncommitted></BlockList>";
    assert_eq!(read(compact), Some(expected.clone()));
    let spread = "\u{feff}<?xml version='1.0' encoding='utf-8'?>\n<!-- a comment -->\n<BlockList>\n  <Latest> MDAw </Latest>\r\n\
                  <Committed>MD<!-- -->Ax</Committed>\n<Uncommitted>MDAy</Uncommitted>\n</BlockList>\n";
    assert_eq!(read(spread), Some(expected));
    assert_eq!(read("<BlockList/>"), Some(Vec::new()));
}

proptest! {
    #[test]
    fn documents_round_trip(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..12)) {
        if let Some(blocks) = read(&pieces.concat()) {
            prop_assert_eq!(read(&written(&blocks)), Some(blocks));
        }
    }

    #[test]
    fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }
}

const PIECES: &[&str] = &[
    "<BlockList>",
    "</BlockList>",
    "<BlockList/>",
    "<Latest>",
    "</Latest>",
    "<Committed>",
    "</Committed>",
    "<Uncommitted>",
    "</Uncommitted>",
    "<Latest/>",
    "MDAw",
    "AA==",
    " ",
    "\n",
    "&amp;",
    "&a;",
    "&#65;",
    "<![CDATA[MDAw]]>",
    "<!-- x -->",
    "<!DOCTYPE a>",
    "<?x?>",
    "<",
    ">",
    "\"",
    "a=\"b\"",
    "\u{0}",
];
