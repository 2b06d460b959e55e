//! `$filter` expressions.

use std::cmp::Ordering;

use uuid::Uuid;

use crate::entity::datetime::DateTime;
use crate::entity::edm::Value;
use crate::entity::properties::{PARTITION_KEY, ROW_KEY, TIMESTAMP};
use crate::error::TableError;

mod parse;
mod token;

/// A filter expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Filter {
    /// All of these hold.
    All(Vec<Filter>),
    /// At least one of these holds.
    Any(Vec<Filter>),
    /// This does not hold.
    Not(Box<Filter>),
    /// A comparison.
    Compare(Operand, Comparison, Operand),
    /// The operand is true: a property or a boolean literal.
    Is(Operand),
}

/// An operand of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    Property(Box<str>),
    Literal(Value),
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The subject of a filter.
pub(crate) trait Row {
    /// Returns a property.
    fn property(&self, name: &str) -> Property<'_>;
}

/// The value of a property, or the fact that it was not read yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Property<'a> {
    /// The property was not read yet.
    Unknown,
    /// The property does not exist.
    Missing,
    /// The property has this value.
    Is(Scalar<'a>),
}

/// A value in a comparison. Numbers of different types are comparable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    Text(&'a str),
    Whole(i64),
    Real(f64),
    Truth(bool),
    Moment(DateTime),
    Id(Uuid),
    Bytes(&'a [u8]),
}

impl Filter {
    /// Parses a filter.
    ///
    /// # Errors
    /// The text is not a filter; the message gives the position.
    pub(crate) fn parse(text: &str) -> Result<Self, TableError> {
        parse::filter(text)
    }

    /// Returns `true` if the filter holds, or `None` if that depends on properties that were not read yet.
    ///
    /// A comparison with a missing property, or one of another type, does not hold.
    pub(crate) fn holds(&self, row: &impl Row) -> Option<bool> {
        match self {
            Self::All(filters) => all(filters.iter().map(|filter| filter.holds(row))),
            Self::Any(filters) => all(filters.iter().map(|filter| filter.holds(row).map(|holds| !holds))).map(|no| !no),
            Self::Not(filter) => filter.holds(row).map(|holds| !holds),
            Self::Is(operand) => match operand.value(row) {
                Property::Unknown => None,
                value => Some(value == Property::Is(Scalar::Truth(true))),
            },
            Self::Compare(left, comparison, right) => match (left.value(row), right.value(row)) {
                (Property::Unknown, _) | (_, Property::Unknown) => None,
                (Property::Is(left), Property::Is(right)) => Some(comparison.holds(left, right)),
                _ => Some(false),
            },
        }
    }

    /// Returns the partition key and row key that every match must have, if the filter determines them.
    pub(crate) fn keys(&self) -> (Option<&str>, Option<&str>) {
        (self.required(PARTITION_KEY), self.required(ROW_KEY))
    }

    /// Returns the text that a property must equal.
    fn required(&self, name: &str) -> Option<&str> {
        match self {
            Self::All(filters) => filters.iter().find_map(|filter| filter.required(name)),
            Self::Compare(Operand::Property(property), Comparison::Equal, Operand::Literal(Value::String(text)))
            | Self::Compare(Operand::Literal(Value::String(text)), Comparison::Equal, Operand::Property(property)) => {
                (**property == *name).then_some(text)
            }
            _ => None,
        }
    }
}

/// Three-valued AND: a single `false` decides.
fn all(mut each: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut known = Some(true);
    each.find_map(|holds| match holds {
        Some(true) => None,
        Some(false) => Some(Some(false)),
        None => {
            known = None;
            None
        }
    })
    .unwrap_or(known)
}

impl Operand {
    /// Returns `true` if the operand may be boolean. The types of most properties are known only from the entities.
    fn may_be_boolean(&self) -> bool {
        match self {
            Self::Literal(value) => matches!(value, Value::Boolean(_)),
            Self::Property(name) => ![PARTITION_KEY, ROW_KEY, TIMESTAMP].contains(&&**name),
        }
    }

    fn value<'a>(&'a self, row: &'a impl Row) -> Property<'a> {
        match self {
            Self::Literal(value) => Property::Is(value.into()),
            Self::Property(name) => row.property(name),
        }
    }
}

impl Comparison {
    fn holds(self, left: Scalar<'_>, right: Scalar<'_>) -> bool {
        let Some(order) = left.compare(right) else {
            // One of the numbers is NaN.
            return self == Self::NotEqual && left.is_number() && right.is_number();
        };
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl Scalar<'_> {
    fn compare(self, other: Scalar<'_>) -> Option<Ordering> {
        match (self, other) {
            (Self::Text(one), Scalar::Text(other)) => Some(one.cmp(other)),
            (Self::Whole(one), Scalar::Whole(other)) => Some(one.cmp(&other)),
            (Self::Truth(one), Scalar::Truth(other)) => Some(one.cmp(&other)),
            (Self::Moment(one), Scalar::Moment(other)) => Some(one.cmp(&other)),
            (Self::Id(one), Scalar::Id(other)) => Some(one.cmp(&other)),
            (Self::Bytes(one), Scalar::Bytes(other)) => Some(one.cmp(other)),
            (one, other) => one.number()?.partial_cmp(&other.number()?),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "doubles have no more digits to compare with")]
    fn number(self) -> Option<f64> {
        match self {
            Self::Whole(number) => Some(number as f64),
            Self::Real(number) => Some(number),
            _ => None,
        }
    }

    fn is_number(self) -> bool {
        self.number().is_some()
    }
}

impl<'a> From<&'a Value> for Scalar<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text),
            Value::Int32(number) => Self::Whole((*number).into()),
            Value::Int64(number) => Self::Whole(*number),
            Value::Double(number) => Self::Real(*number),
            Value::Boolean(value) => Self::Truth(*value),
            Value::DateTime(moment) => Self::Moment(*moment),
            Value::Guid(id) => Self::Id(*id),
            Value::Binary(bytes) => Self::Bytes(bytes),
        }
    }
}

#[cfg(test)]
mod tests;
