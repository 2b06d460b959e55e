//! Parser for filters. `or` binds weaker than `and`; `not` applies to a comparison or to parentheses.

use super::token::{self, FilterToken};
use super::{Filter, FilterOperand};
use crate::error::TableError;

/// Maximum nesting depth.
const MAX_DEPTH: usize = 50;

/// Parses a whole filter.
pub(crate) fn filter(text: &str) -> Result<Filter, TableError> {
    let mut parser = Parser {
        text,
        rest: text,
        depth: 0,
    };
    let filter = parser.any()?;
    if parser.rest.trim_start().is_empty() {
        Ok(filter)
    } else {
        Err(parser.unexpected())
    }
}

/// The state of parsing a filter.
struct Parser<'a> {
    text: &'a str,
    /// The text that isn't parsed yet.
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    /// Parses filters joined by `or`.
    fn any(&mut self) -> Result<Filter, TableError> {
        self.chain(&FilterToken::Or, Self::all, Filter::Any)
    }

    /// Parses filters joined by `and`.
    fn all(&mut self) -> Result<Filter, TableError> {
        self.chain(&FilterToken::And, Self::one, Filter::All)
    }

    /// Parses one or more operands joined by the same operator.
    fn chain(
        &mut self,
        between: &FilterToken,
        each: fn(&mut Self) -> Result<Filter, TableError>,
        together: fn(Vec<Filter>) -> Filter,
    ) -> Result<Filter, TableError> {
        let first = each(self)?;
        let mut filters = vec![first];
        while self.take(between) {
            filters.push(each(self)?);
        }
        Ok(if filters.len() == 1 {
            filters.remove(0)
        } else {
            together(filters)
        })
    }

    /// Parses a comparison, or a filter in parentheses, each maybe negated.
    fn one(&mut self) -> Result<Filter, TableError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(TableError::invalid(format!(
                "the filter is nested more than {MAX_DEPTH} levels deep"
            )));
        }
        let filter = if self.take(&FilterToken::Not) {
            Filter::Not(Box::new(self.one()?))
        } else if self.take(&FilterToken::Open) {
            let inner = self.any()?;
            if !self.take(&FilterToken::Close) {
                return Err(self.unexpected());
            }
            inner
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(filter)
    }

    /// Parses a comparison, or a boolean operand.
    fn comparison(&mut self) -> Result<Filter, TableError> {
        let left = self.operand()?;
        match token::next(self.rest) {
            Some((FilterToken::Compare(comparison), rest)) => {
                self.rest = rest;
                Ok(Filter::Compare(left, comparison, self.operand()?))
            }
            _ if left.may_be_boolean() => Ok(Filter::Is(left)),
            _ => Err(TableError::invalid(
                "part of the filter is not boolean: compare it with a value",
            )),
        }
    }

    /// Parses a property or a literal.
    fn operand(&mut self) -> Result<FilterOperand, TableError> {
        let (operand, rest) = match token::next(self.rest) {
            Some((FilterToken::Property(name), rest)) => (FilterOperand::Property(name), rest),
            Some((FilterToken::Literal(value), rest)) => (FilterOperand::Literal(value), rest),
            _ => return Err(self.unexpected()),
        };
        self.rest = rest;
        Ok(operand)
    }

    /// Consumes the next token if it is this one.
    fn take(&mut self, token: &FilterToken) -> bool {
        match token::next(self.rest) {
            Some((next, rest)) if next == *token => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// The error for the text that follows.
    fn unexpected(&self) -> TableError {
        let at = self.text.len() - self.rest.trim_start().len();
        TableError::invalid(format!("unexpected text in the filter at byte {at}"))
    }
}
