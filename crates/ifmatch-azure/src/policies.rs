//! Documents of stored access policies, and the policies that the signatures of a request name.

use http::request::Parts;
use ifmatch_blob::accounts::Accounts;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::headers::FieldText;
use ifmatch_blob::name::ContainerName;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::auth;
use crate::auth::access_policy::{self, AccessPolicy, LIMITS};
use crate::error::AzureError;
use crate::request::xml::{self, XmlVisitor, invalid};
use crate::response::XmlWriter;

/// Maximum number of policies of a container.
const MAX_POLICIES: usize = 5;

/// Parses the body of Set Container ACL into the form in which stores keep policies.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<FieldText>, AzureError> {
    let mut document = PoliciesParser::default();
    if !bytes.trim_ascii().is_empty() {
        xml::visit(bytes, &mut document)?;
        if !document.is_complete {
            return Err(invalid("it has no SignedIdentifiers element that ends"));
        }
    }
    let policies = document.policies;
    if !policies.iter().all(AccessPolicy::is_valid) {
        let message = "an Id has 1 to 64 characters, Start and Expiry are times such as 2026-11-28T15:00:00Z, and Permission is letters \
                       such as rwd";
        return Err(AzureError::bad_request("InvalidXmlNodeValue", message));
    }
    let is_twice = |(at, policy): (usize, &AccessPolicy)| {
        policies[..at].iter().any(|other| other.id == policy.id)
    };
    if policies.iter().enumerate().any(is_twice) {
        return Err(invalid("two policies have the same Id"));
    }
    let text = |policy: &AccessPolicy| {
        let limits = policy
            .limits
            .each_ref()
            .map(|limit| limit.as_deref().unwrap_or_default());
        format!(
            "{},{}",
            utf8_percent_encode(&policy.id, NON_ALPHANUMERIC),
            limits.join(",")
        )
    };
    let text = policies.iter().map(text).collect::<Vec<_>>().join(";");
    if text.is_empty() {
        Ok(None)
    } else {
        FieldText::new(&text)
            .map(Some)
            .map_err(|_| invalid("an unwritable value"))
    }
}

/// Returns the document that describes these policies.
pub(crate) fn document(policies: &[AccessPolicy]) -> String {
    const ROOT: &str = "SignedIdentifiers";
    let mut xml = XmlWriter::begin(ROOT);
    for policy in policies {
        xml.open("SignedIdentifier");
        xml.text("Id", &policy.id);
        // As in Azure, a policy without limits has no element for them.
        if policy.limits.iter().all(Option::is_none) {
            xml.close("SignedIdentifier");
            continue;
        }
        xml.open("AccessPolicy");
        for ((_, name), limit) in LIMITS.iter().zip(&policy.limits) {
            if let Some(limit) = limit {
                xml.text(name, limit);
            }
        }
        xml.close("AccessPolicy");
        xml.close("SignedIdentifier");
    }
    xml.end(ROOT)
}

/// The policies that the signatures of a request name.
#[derive(Debug, Default)]
pub(crate) struct NamedPolicies {
    /// Of the signature in the request's own query.
    pub(crate) of_request: Option<AccessPolicy>,
    /// Of the signature in the URL of a copy's source.
    pub(crate) of_source: Option<AccessPolicy>,
}

/// Finds the policies that a request's signatures name. Without its policy, a signature grants nothing.
pub(crate) async fn named(
    context: &Context,
    accounts: &Accounts,
    head: &Parts,
) -> Result<NamedPolicies, AzureError> {
    let of_request = find(context, auth::policy_named(accounts, head)).await?;
    let of_source = match auth::source_of(head) {
        Some(source) => find(context, auth::policy_named(accounts, &source)).await?,
        None => None,
    };
    Ok(NamedPolicies {
        of_request,
        of_source,
    })
}

/// Finds the policy with this container and id.
async fn find(
    context: &Context,
    named: Option<(ContainerName, String)>,
) -> Result<Option<AccessPolicy>, AzureError> {
    let Some((container, id)) = named else {
        return Ok(None);
    };
    let info = context
        .store
        .container(&container)
        .await
        .map_err(AzureError::of_container)?;
    Ok(info.and_then(|info| {
        access_policy::of(&info.headers)
            .into_iter()
            .find(|policy| policy.id == id)
    }))
}

/// The state of parsing a document.
#[derive(Default)]
struct PoliciesParser {
    path: Vec<PolicyElement>,
    policies: Vec<AccessPolicy>,
    /// The names of the elements in the last policy.
    seen: Vec<Vec<u8>>,
    /// The text since the last tag, whose parts are shown one by one.
    text: String,
    is_complete: bool,
}

impl PoliciesParser {
    /// Takes the text before a tag. The spaces of an id belong to it, as a signature names it.
    fn end_text(&mut self) -> Result<(), AzureError> {
        let text = std::mem::take(&mut self.text);
        match (self.path.last(), self.policies.last_mut()) {
            (Some(PolicyElement::Id), Some(policy)) => policy.id.push_str(&text),
            _ if text.trim().is_empty() => {}
            (Some(PolicyElement::Limit(at)), Some(policy)) => {
                policy.limits[*at]
                    .get_or_insert_default()
                    .push_str(text.trim());
            }
            _ => return Err(invalid("unexpected text between elements")),
        }
        Ok(())
    }
}

/// An element of a document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PolicyElement {
    Root,
    Identifier,
    Id,
    Policy,
    /// The limit with this index.
    Limit(usize),
}

impl XmlVisitor for PoliciesParser {
    fn open(&mut self, name: &[u8]) -> Result<(), AzureError> {
        let is_first = !self.seen.iter().any(|seen| seen == name);
        let limit = || {
            LIMITS
                .iter()
                .position(|(_, limit)| limit.as_bytes() == name)
                .map(PolicyElement::Limit)
        };
        let element = match (self.path.last(), name) {
            (None, b"SignedIdentifiers") if !self.is_complete => Some(PolicyElement::Root),
            (Some(PolicyElement::Root), b"SignedIdentifier")
                if self.policies.len() < MAX_POLICIES =>
            {
                self.policies.push(AccessPolicy::default());
                self.seen.clear();
                Some(PolicyElement::Identifier)
            }
            (Some(PolicyElement::Identifier), b"Id") if is_first => Some(PolicyElement::Id),
            (Some(PolicyElement::Identifier), b"AccessPolicy") if is_first => {
                Some(PolicyElement::Policy)
            }
            (Some(PolicyElement::Policy), _) => limit().filter(|_| is_first),
            _ => None,
        };
        self.end_text()?;
        let rule = "expected SignedIdentifiers with up to 5 SignedIdentifier elements of an Id and an AccessPolicy";
        self.path.push(element.ok_or_else(|| invalid(rule))?);
        self.seen.push(name.to_vec());
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), AzureError> {
        self.text.push_str(text);
        Ok(())
    }

    fn close(&mut self) -> Result<(), AzureError> {
        self.end_text()?;
        self.path
            .pop()
            .ok_or_else(|| invalid("unbalanced elements"))?;
        self.is_complete = self.path.is_empty();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ifmatch_blob::headers::BlobHeaders;

    use super::*;

    fn kept(document: &str) -> Result<Vec<AccessPolicy>, &'static str> {
        let policies = parse(document.as_bytes()).map_err(|error| error.code)?;
        Ok(access_policy::of(&BlobHeaders {
            policies,
            ..BlobHeaders::default()
        }))
    }

    fn identifier(id: &str, policy: &str) -> String {
        format!(
            "<SignedIdentifier><Id>{id}</Id><AccessPolicy>{policy}</AccessPolicy></SignedIdentifier>"
        )
    }

    fn all(identifiers: &str) -> String {
        format!("<?xml version='1.0'?><SignedIdentifiers>{identifiers}</SignedIdentifiers>")
    }

    #[test]
    fn policies_are_kept_as_they_were_sent() {
        let whole = "<Start>2026-11-24</Start><Expiry>2026-11-28T15:00:00.0000000Z</Expiry><Permission>rwd</Permission>";
        let sent = all(&[
            identifier("one, two; drei\u{fc}", whole),
            identifier("bare", "<Start/>"),
        ]
        .concat());
        let policies = kept(&sent).expect("valid");
        assert_eq!(policies[0].id, "one, two; drei\u{fc}");
        let limits = ["st", "se", "sp"].map(|name| policies[0].limit(name));
        assert_eq!(
            limits,
            [
                Some("2026-11-24"),
                Some("2026-11-28T15:00:00.0000000Z"),
                Some("rwd")
            ]
        );
        assert_eq!(policies[1].limits, [None, None, None]);
        assert_eq!(kept(&document(&policies)), Ok(policies));
        assert_eq!((kept(""), kept(&all(""))), (Ok(Vec::new()), Ok(Vec::new())));
    }

    #[test]
    fn an_id_is_the_text_that_its_xml_means() {
        for (id, text) in [
            ("a&b", "a&amp;b"),
            ("a & b", "a &amp; b"),
            ("<\"'>", "&lt;&quot;&apos;&gt;"),
            ("a-b", "a&#45;&#x62;"),
            (" a ", " a "),
            ("ab", "a<!-- -->b"),
        ] {
            let kept = kept(&all(&identifier(text, "<Permission>r</Permission>"))).expect(text);
            assert_eq!(kept[0].id, id, "{text}");
            assert_eq!(self::kept(&document(&kept)), Ok(kept), "{text}");
        }
        for text in [
            "a&other;b",
            "a&#0;b",
            "a&#1;b",
            "a&#xD800;b",
            "a&b",
            "a<![CDATA[b]]>",
        ] {
            assert_eq!(
                kept(&all(&identifier(text, ""))),
                Err("InvalidXmlDocument"),
                "{text}"
            );
        }
    }

    #[test]
    fn other_documents_are_refused() {
        let six: String = (0..6).map(|id| identifier(&id.to_string(), "")).collect();
        for (document, code) in [
            (all(&six), "InvalidXmlDocument"),
            (
                all(&[identifier("a", ""), identifier("a", "")].concat()),
                "InvalidXmlDocument",
            ),
            (all(&identifier("", "")), "InvalidXmlNodeValue"),
            (all(&identifier(&"a".repeat(65), "")), "InvalidXmlNodeValue"),
            (
                all(&identifier("a", "<Expiry>tomorrow</Expiry>")),
                "InvalidXmlNodeValue",
            ),
            (
                all(&identifier("a", "<Permission>r,w</Permission>")),
                "InvalidXmlNodeValue",
            ),
            (all(&identifier("a", "<Other/>")), "InvalidXmlDocument"),
            (all("text"), "InvalidXmlDocument"),
            ("<SignedIdentifiers>".to_owned(), "InvalidXmlDocument"),
            ("<?xml version='1.0'?>".to_owned(), "InvalidXmlDocument"),
            ("<!-- nothing -->".to_owned(), "InvalidXmlDocument"),
            ("<Other/>".to_owned(), "InvalidXmlDocument"),
            ([all(""), all("")].concat(), "InvalidXmlDocument"),
        ] {
            assert_eq!(kept(&document), Err(code), "{document}");
        }
    }
}
