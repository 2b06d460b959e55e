//! The requests for records under a prefix, and what their responses mean.

use ifmatch_core::record::{Record, Revision};
use ifmatch_register::lanes::{QueuedSwap, decode, encode};
use ifmatch_register::{Key, RegisterError, Scan, Swap};

use crate::error::unexpected;
use crate::rpc::{
    Compare, CompareOperand, CompareResult, CompareTarget, DeleteRequest, KeyValue, PutRequest,
    RangeRequest, RequestKind, RequestOp, ResponseKind, ResponseOp, TxnRequest, TxnResponse,
};

/// Maximum number of operations in a transaction. Servers accept 128 by default, and count a nested one's, too.
pub(crate) const OPERATIONS: usize = 64;
/// Maximum length of the keys and values in a transaction, in bytes. Servers accept 1.5 MiB by default, and a larger value only alone.
const BYTES: usize = 1 << 20;

/// Divides a batch into parts that fit a transaction each.
pub(crate) fn transactions(batch: &[QueuedSwap]) -> Vec<&[QueuedSwap]> {
    let mut parts = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, swap) in batch.iter().enumerate() {
        let record_length = swap.next.as_ref().map_or(0, |next| next.encode().len());
        let length = swap.key.as_str().len() + record_length;
        if at > start && (at - start >= OPERATIONS || bytes + length > BYTES) {
            parts.push(&batch[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += length;
    }
    parts.push(&batch[start..]);
    parts
}

/// Returns the transaction of several swaps, each of which is nested and has its own comparison.
pub(crate) fn swap_all(prefix: &str, swaps: &[QueuedSwap]) -> TxnRequest {
    let nested = swaps
        .iter()
        .map(|swap| RequestKind::Txn(swap_one(prefix, swap)));
    // Never carried out, since nothing is compared. Servers count no changes of nested transactions: without this one,
    // the database would grow beyond its quota.
    let quota = swaps.iter().take(1).map(|swap| {
        RequestKind::Put(PutRequest {
            key: stored_key(prefix, &swap.key),
            value: Vec::new(),
        })
    });
    TxnRequest {
        compare: Vec::new(),
        success: nested.map(operation).collect(),
        failure: quota.map(operation).collect(),
    }
}

/// Returns the transaction that loads several records.
pub(crate) fn load_all(prefix: &str, keys: &[&Key]) -> TxnRequest {
    TxnRequest {
        success: keys.iter().map(|key| load_one(prefix, key)).collect(),
        ..TxnRequest::default()
    }
}

/// Returns the request for a page of a scan.
pub(crate) fn page(prefix: &str, scan: &Scan<'_>) -> RangeRequest {
    let first = format!("{prefix}{}", scan.prefix).into_bytes();
    // The key after all that begin with the prefix, which isn't empty. UTF-8 has no byte 255.
    let mut range_end = first.clone();
    if let Some(last) = range_end.last_mut() {
        *last += 1;
    }
    // The first key after `after` is the same with a byte 0.
    let after = scan.after.filter(|after| *after >= scan.prefix);
    let after = after.map(|after| format!("{prefix}{after}\0").into_bytes());
    RangeRequest {
        key: after.unwrap_or(first),
        range_end,
        limit: i64::try_from(scan.limit).unwrap_or(i64::MAX),
    }
}

/// Reads the response to one swap of [`swap_all`].
pub(crate) fn swap_result(response: ResponseOp) -> Result<Swap, RegisterError> {
    match response.answer {
        Some(ResponseKind::Txn(TxnResponse {
            succeeded: true, ..
        })) => Ok(Swap::Done),
        Some(ResponseKind::Txn(TxnResponse { responses, .. })) => {
            let current = responses.into_iter().next().ok_or_else(unexpected)?;
            Ok(Swap::Conflict(record(current)?))
        }
        _ => Err(unexpected()),
    }
}

/// Reads the response to the load of one record.
pub(crate) fn record(response: ResponseOp) -> Result<Option<Record>, RegisterError> {
    let Some(ResponseKind::Range(range)) = response.answer else {
        return Err(unexpected());
    };
    let pair = range.kvs.first();
    pair.map(|pair| decode(&pair.value)).transpose()
}

/// Reads one record of a page.
pub(crate) fn entry(prefix: &str, pair: &KeyValue) -> Result<(Key, Record), RegisterError> {
    let key = pair.key.strip_prefix(prefix.as_bytes());
    let key = key.and_then(|key| str::from_utf8(key).ok());
    let key = key.and_then(|key| Key::new(key).ok());
    Ok((key.ok_or_else(unexpected)?, decode(&pair.value)?))
}

/// Returns the transaction of one swap. A value between an expected revision and the next one begins with the
/// expected one.
fn swap_one(prefix: &str, swap: &QueuedSwap) -> TxnRequest {
    let key = stored_key(prefix, &swap.key);
    let compare = |result, target, operand| Compare {
        result: i32::from(result),
        target: i32::from(target),
        key: key.clone(),
        operand: Some(operand),
    };
    let compare_value = |result, revision: u64| {
        let value = CompareOperand::Value(revision.to_be_bytes().to_vec());
        compare(result, CompareTarget::Value, value)
    };
    let expected = swap.expected.get();
    let comparisons = if swap.expected == Revision::NONE {
        let never_created = CompareOperand::Version(0);
        vec![compare(
            CompareResult::Equal,
            CompareTarget::Version,
            never_created,
        )]
    } else {
        let lower = compare_value(CompareResult::Greater, expected);
        // No revision follows the last one.
        let next = expected.checked_add(1);
        let upper = next.map(|next| compare_value(CompareResult::Less, next));
        [lower].into_iter().chain(upper).collect()
    };
    let change = match &swap.next {
        Some(next) => RequestKind::Put(PutRequest {
            key: key.clone(),
            value: encode(next),
        }),
        None => RequestKind::Delete(DeleteRequest { key: key.clone() }),
    };
    TxnRequest {
        compare: comparisons,
        success: vec![operation(change)],
        failure: vec![load_one(prefix, &swap.key)],
    }
}

/// Returns the operation that loads one record.
fn load_one(prefix: &str, key: &Key) -> RequestOp {
    operation(RequestKind::Range(RangeRequest {
        key: stored_key(prefix, key),
        ..RangeRequest::default()
    }))
}

/// Returns the key under which etcd has a record.
fn stored_key(prefix: &str, key: &Key) -> Vec<u8> {
    format!("{prefix}{key}").into_bytes()
}

fn operation(op: RequestKind) -> RequestOp {
    RequestOp { op: Some(op) }
}
