/** Anything with header fields: `Headers`, or an object of yours. Several lines of a field are joined by `, `. */
export interface HeadersLike {
  get(name: string): string | null | undefined;
}

/** Anything with a method and header fields: a `Request`. */
export interface RequestLike {
  readonly method: string;
  readonly headers: HeadersLike;
}

/** What identifies the current representation. Any other property is a `TypeError`. */
export interface Validators {
  /** Its entity tag, quotes included; with several content codings the tags of all of them. */
  etag?: string | readonly string[] | null;
  /** The date that you send as `Last-Modified`: see `lastModified`. */
  lastModified?: string | Date | null;
  /** Its length in bytes, which no condition needs: so that one object is enough for `selectRange`, too. */
  length?: number;
}

/** The very representation that is about to be sent. */
export interface Representation {
  /** Its entity tag, quotes included. */
  etag?: string | null;
  /** The date that you send as `Last-Modified`. */
  lastModified?: string | Date | null;
  /** Its length in bytes. */
  length: number;
}

/** What the conditions of a request say (RFC 9110 §13.2.2). */
export type Verdict =
  /** Perform the method. */
  | { readonly outcome: "proceed" }
  /** The client has the current representation. Only for GET and HEAD. */
  | { readonly outcome: "not-modified"; readonly status: 304 }
  /** A condition is false. */
  | {
      readonly outcome: "failed";
      readonly status: 412;
      readonly condition: "if-match" | "if-none-match" | "if-unmodified-since";
    };

/** A range of bytes, both ends included. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
  /** The value of `Content-Range`. */
  readonly contentRange: string;
}

/** What to answer a `Range` with (RFC 9110 §14.2). */
export type Selection =
  /** 200 with the whole representation. */
  | { readonly outcome: "whole" }
  /** 206 with these ranges: at least one, in the order of the request, none overlaps another. */
  | { readonly outcome: "parts"; readonly status: 206; readonly ranges: readonly ByteRange[] }
  /** 416, with this `Content-Range`. */
  | { readonly outcome: "unsatisfiable"; readonly status: 416; readonly contentRange: string };
