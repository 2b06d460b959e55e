//! The query parameters of a request.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ifmatch_blob::name::{self, InvalidName};

use crate::error::{ErrorCode, TableError};
use crate::request::filter::Filter;

/// The query parameters of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueryOptions {
    pub(crate) format: Option<String>,
    pub(crate) filter: Option<Filter>,
    /// The properties to return, or `None` for all.
    pub(crate) select: Option<Vec<String>>,
    /// Maximum number of rows, which may be none.
    pub(crate) top: usize,
    pub(crate) next_partition: Option<ContinuationToken>,
    pub(crate) next_row: Option<ContinuationToken>,
    pub(crate) next_table: Option<ContinuationToken>,
    /// `restype` and `comp`, if one of them is present: the request is about the service itself, or about permissions.
    pub(crate) subject: Option<(String, String)>,
}

/// Maximum and default number of rows in a page.
const MAX_ROWS: usize = 1000;

impl QueryOptions {
    /// Parses a query.
    ///
    /// # Errors
    /// A parameter is malformed, or one that starts with `$` is repeated: either of its values would be ignored.
    pub(crate) fn parse(query: &str) -> Result<Self, TableError> {
        let mut options = Self {
            format: None,
            filter: None,
            select: None,
            top: MAX_ROWS,
            next_partition: None,
            next_row: None,
            next_table: None,
            subject: None,
        };
        let malformed = |error: InvalidName| {
            TableError::new(ErrorCode::InvalidQueryParameterValue).detail(error.to_string())
        };
        let mut taken = Vec::new();
        for parameter in name::parameters(query) {
            let (name, value) = parameter.map_err(malformed)?;
            options.take(&name, &value)?;
            if name.starts_with('$') {
                if taken.contains(&name) {
                    return Err(TableError::invalid(format!("send {name} once")));
                }
                taken.push(name);
            }
        }
        Ok(options)
    }

    /// Takes a parameter.
    fn take(&mut self, name: &str, value: &str) -> Result<(), TableError> {
        match name {
            "$format" => self.format = Some(value.to_owned()),
            "$filter" if value.trim().is_empty() => self.filter = None,
            "$filter" => self.filter = Some(Filter::parse(value)?),
            "$select" => self.select = select(value),
            "$top" => self.top = top(value)?,
            "NextPartitionKey" => self.next_partition = Some(ContinuationToken::decode(value)?),
            "NextRowKey" => self.next_row = Some(ContinuationToken::decode(value)?),
            "NextTableName" => self.next_table = Some(ContinuationToken::decode(value)?),
            "restype" => value.clone_into(&mut self.subject.get_or_insert_default().0),
            "comp" => value.clone_into(&mut self.subject.get_or_insert_default().1),
            // Without it, the answer would be another one: $orderby, $skip, $inlinecount.
            _ if name.starts_with('$') => {
                return Err(TableError::new(ErrorCode::NotImplemented).detail(format!(
                    "omit {name}: a query takes $filter, $select and $top"
                )));
            }
            // As in Azure, `timeout` and unknown parameters are ignored.
            _ => {}
        }
        Ok(())
    }
}

/// A continuation token: the last key of a page, in an opaque form that is never empty, and ASCII.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContinuationToken(pub(crate) String);

/// Prefix of all tokens.
const TOKEN_PREFIX: &str = "1!";

impl ContinuationToken {
    /// Returns the form for a header or a query.
    pub(crate) fn encode(&self) -> String {
        format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(&self.0))
    }

    fn decode(text: &str) -> Result<Self, TableError> {
        let bytes = text
            .strip_prefix(TOKEN_PREFIX)
            .and_then(|encoded| URL_SAFE_NO_PAD.decode(encoded).ok());
        let key = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let wrong = || {
            TableError::new(ErrorCode::InvalidQueryParameterValue)
                .detail("a continuation token must be one returned by the service")
        };
        key.map(Self).ok_or_else(wrong)
    }
}

/// Parses `$select`.
fn select(text: &str) -> Option<Vec<String>> {
    let names: Vec<String> = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(ToOwned::to_owned)
        .collect();
    (!names.is_empty() && !names.iter().any(|name| name == "*")).then_some(names)
}

/// Parses `$top`.
fn top(text: &str) -> Result<usize, TableError> {
    match text.parse() {
        Ok(top @ 0..=MAX_ROWS) => Ok(top),
        _ => Err(TableError::invalid(format!(
            "$top must be a number from 0 to {MAX_ROWS}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let options = QueryOptions::parse("$select=a,%20b,&$top=3&%24filter=a+eq+1%2B1&timeout=5")
            .unwrap_err();
        assert_eq!(options.code(), ErrorCode::InvalidInput);
        let options =
            QueryOptions::parse("$select=a,%20b,&$top=3&%24filter=a+eq+'1%2B1'&timeout=5")
                .expect("options");
        assert_eq!(options.select, Some(vec!["a".into(), "b".into()]));
        assert_eq!(options.top, 3);
        assert_eq!(options.filter, Filter::parse("a eq '1+1'").ok());
        assert_eq!(options.subject, None);
        let subject = |query| {
            QueryOptions::parse(query)
                .expect("options")
                .subject
                .expect("about something else")
        };
        assert_eq!(subject("comp=acl"), (String::new(), "acl".to_owned()));
        assert_eq!(
            subject("comp=stats&restype=service"),
            ("service".to_owned(), "stats".to_owned())
        );
        assert!(
            QueryOptions::parse("$select=*&$filter=").is_ok_and(|options| options.select.is_none())
        );
    }

    #[test]
    fn rejects_malformed_parameters() {
        let rows = [
            ("$top=-1", ErrorCode::InvalidInput),
            ("$top=1001", ErrorCode::InvalidInput),
            ("$top=x", ErrorCode::InvalidInput),
            ("$filter=eq", ErrorCode::InvalidInput),
            (
                "$filter=a+eq+'1'&%24filter=b+eq+'1'",
                ErrorCode::InvalidInput,
            ),
            ("$orderby=a", ErrorCode::NotImplemented),
            ("$Top=1", ErrorCode::NotImplemented),
            ("$filter=%zz", ErrorCode::InvalidQueryParameterValue),
            ("NextRowKey=", ErrorCode::InvalidQueryParameterValue),
            ("NextTableName=abc", ErrorCode::InvalidQueryParameterValue),
            (
                "NextPartitionKey=1!_w",
                ErrorCode::InvalidQueryParameterValue,
            ),
        ];
        for (query, code) in rows {
            assert_eq!(
                QueryOptions::parse(query).unwrap_err().code(),
                code,
                "{query}"
            );
        }
    }

    #[test]
    fn tokens_round_trip() {
        for key in ["", "a", "é !'\u{a0}"] {
            let token = ContinuationToken(key.to_owned()).encode();
            assert!(token.is_ascii() && !token.is_empty());
            let options = QueryOptions::parse(&format!("NextRowKey={token}")).expect("options");
            assert_eq!(options.next_row, Some(ContinuationToken(key.to_owned())));
        }
    }
}
