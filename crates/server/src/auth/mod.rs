//! Who is calling: a user's token on the `Authorization` header, or the browser's session cookie.
//! What the caller may then do is decided by membership, not here.

pub mod session;
pub mod token;
