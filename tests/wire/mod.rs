//! XDR, and the types of NFSv3 against an independent implementation (`nfs3_types`).

mod round_trip;
mod xdr;
