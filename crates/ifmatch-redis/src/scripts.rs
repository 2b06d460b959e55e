//! The Lua scripts. Redis carries out each as one step.

use std::sync::LazyLock;

use redis::Script;

/// Error of a script that was called with an identity that is no longer the current one. Nothing was changed.
pub(crate) const OTHER_IDENTITY: &str = "IDENTITY";

/// Returns the identity. If there is none, stores the given one, if that isn't empty. Raises the epoch if the replication id differs,
/// or if the data were restored. Revisions up to a minute later then count as lost: the new server's clock may be behind.
///
/// `KEYS`: identity. `ARGV`: name, replication id, "restored" or nothing.
pub(crate) static IDENTIFY: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local found = redis.call('GET', KEYS[1])
        local name, epoch, id
        local lost = ''
        if found then
            name, epoch, id = string.match(found, '^(%S+) (%d+) (%S+)')
            if not name or id == ARGV[2] and ARGV[3] == '' then return found end
            epoch = epoch + 1
            local time = redis.call('TIME')
            lost = string.format(' %.0f', (time[1] + 60) * 1000000 + time[2])
        elseif ARGV[1] ~= '' then
            name, epoch = ARGV[1], 0
        else
            return false
        end
        found = string.format('%s %d %s', name, epoch, ARGV[2]) .. lost
        redis.call('SET', KEYS[1], found)
        return found",
    )
});

/// Swaps records. Answers 1 for a swap that took place, otherwise the record found, with its revision, or nil.
///
/// `KEYS`: identity, names, and the record of each swap. `ARGV`: identity; for each swap its name, the expected revision
/// as eight bytes or nothing, and the new record with its revision, or nothing.
pub(crate) static SWAP: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.error_reply('IDENTITY has changed') end
        local answers = {}
        for swap = 1, #KEYS - 2 do
            local record, at = KEYS[swap + 2], 3 * swap - 1
            local name, expected, next = ARGV[at], ARGV[at + 1], ARGV[at + 2]
            if redis.call('GETRANGE', record, 0, 7) ~= expected then
                answers[swap] = redis.call('GET', record)
            else
                if next == '' then
                    redis.call('DEL', record)
                    redis.call('ZREM', KEYS[2], name)
                else
                    redis.call('SET', record, next)
                    if expected == '' then redis.call('ZADD', KEYS[2], 0, name) end
                end
                answers[swap] = 1
            end
        end
        return answers",
    )
});

/// Lists records: names and records in turn, in the order of the names' bytes.
///
/// `KEYS`: identity, names. `ARGV`: identity, lower bound, upper bound, limit, prefix of records.
pub(crate) static LIST: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.error_reply('IDENTITY has changed') end
        local page = {}
        for _, name in ipairs(redis.call('ZRANGEBYLEX', KEYS[2], ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])) do
            page[#page + 1] = name
            page[#page + 1] = redis.call('GET', ARGV[5] .. name)
        end
        return page",
    )
});
