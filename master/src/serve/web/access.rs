//! Who may see the live page, pure: each request is judged by its head alone.
//!
//! The token opens it: as `Authorization: Bearer`, once as `/?token=`, or in the cookie that this gives.
//! Browsers send a cookie to every port of a host, also to the servers of other users there; so the page has
//! a path of its own, which nobody can guess, and the cookie is for that path alone. A name that leads here
//! by a hostile DNS answer is none of the names in [`Access::names`], and requests that another site's page
//! makes are refused.

use std::net::IpAddr;

use axum::http::{HeaderMap, Method, Uri, header, uri::Authority};
use ring::hmac;

use super::token::Token;

const COOKIE: &str = "coswitch";

/// How a request has shown the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// In each request: a program.
    Bearer,
    Cookie,
    /// In the address that a user has opened.
    Address,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    Method,
    Host,
    OtherSite,
    NoToken,
    WrongToken,
}

/// The rules of one server.
pub(super) struct Access {
    key: hmac::Key,
    tag: hmac::Tag,
    /// The path of the page, between slashes.
    pub(super) path: String,
    /// The names by which this machine may be called, besides its addresses.
    names: Vec<String>,
}

impl Access {
    pub(super) fn new(token: &Token, names: Vec<String>) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.text().as_bytes());
        let path = hmac::sign(&key, b"path of the page");
        let path: String = path.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let tag = hmac::sign(&key, token.text().as_bytes());
        Self { key, tag, path: format!("/live-{path}/"), names }
    }

    /// How a request has shown the token, unless it is refused.
    pub(super) fn check(&self, method: &Method, uri: &Uri, head: &HeaderMap) -> Result<Shown, Denied> {
        if method != Method::GET && method != Method::HEAD {
            return Err(Denied::Method);
        }
        let host = text(head, header::HOST.as_str()).and_then(|host| host.parse::<Authority>().ok());
        let host = host.filter(|host| self.is_own_name(host.host())).ok_or(Denied::Host)?;
        if comes_from_elsewhere(head, &host) {
            return Err(Denied::OtherSite);
        }
        let bearer = text(head, header::AUTHORIZATION.as_str()).map(|text| (Shown::Bearer, bearer(text)));
        let address = (uri.path() == "/").then(|| parameter(uri)).flatten();
        let address = address.map(|token| (Shown::Address, token));
        let in_cookie = cookie(head).filter(|_| uri.path().starts_with(&self.path));
        let cookie = in_cookie.map(|token| (Shown::Cookie, token));
        let (shown, token) = bearer.or(address).or(cookie).ok_or(Denied::NoToken)?;
        if self.is_right(token) { Ok(shown) } else { Err(Denied::WrongToken) }
    }

    /// In a time that does not depend on how much of it is right.
    fn is_right(&self, token: &str) -> bool {
        hmac::verify(&self.key, token.as_bytes(), self.tag.as_ref()).is_ok()
    }

    /// An address is no name that a foreign DNS server answers for.
    fn is_own_name(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_name = |name: &String| name.eq_ignore_ascii_case(host);
        bare.parse::<IpAddr>().is_ok() || self.names.iter().any(is_name)
    }

    /// The header that gives a browser the token.
    pub(super) fn cookie_of(&self, token: &Token) -> String {
        format!("{COOKIE}={}; Path={}; HttpOnly; SameSite=Strict", token.text(), self.path)
    }
}

/// Whether the page of another site, or of another port here, has made the request. A user may follow a link
/// from anywhere: that shows the page to the user and not to the site.
fn comes_from_elsewhere(head: &HeaderMap, host: &Authority) -> bool {
    let is = |name, value| text(head, name) == Some(value);
    let follows_link = is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document");
    let site = text(head, "sec-fetch-site");
    let is_foreign = !matches!(site, None | Some("same-origin" | "none")) && !follows_link;
    let origin = text(head, header::ORIGIN.as_str());
    let same = |origin: &str| {
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_str()))
    };
    is_foreign || !origin.is_none_or(same)
}

fn text<'a>(head: &'a HeaderMap, name: &str) -> Option<&'a str> {
    // A header that is no text is there, and right for nobody.
    head.get(name).map(|value| value.to_str().unwrap_or("?"))
}

fn bearer(text: &str) -> &str {
    let scheme = text.get(.."bearer ".len()).filter(|scheme| scheme.eq_ignore_ascii_case("bearer "));
    scheme.map_or("", |scheme| text[scheme.len()..].trim())
}

fn parameter(uri: &Uri) -> Option<&str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix("token="))
}

fn cookie(head: &HeaderMap) -> Option<&str> {
    let all = head.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|text| text.split(';'));
    pairs.filter_map(|pair| pair.trim().split_once('=')).find(|(name, _)| *name == COOKIE).map(|pair| pair.1)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn access() -> (Access, Token) {
        let token = Token::random().unwrap();
        let access = Access::new(&token, vec!["localhost".into(), "head".into()]);
        (access, token)
    }

    fn judged(access: &Access, path: &str, head: &[(&'static str, &str)]) -> Result<Shown, Denied> {
        let head: HeaderMap = head
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect();
        access.check(&Method::GET, &path.parse().unwrap(), &head)
    }

    #[test]
    fn the_token_opens_in_three_ways_and_the_cookie_at_its_own_path_alone() {
        let (access, token) = access();
        let host = ("host", "127.0.0.1:8417");
        let bearer = format!("Bearer {}", token.text());
        let shown = |path: &str, more| judged(&access, path, &[host, more]);
        assert_eq!(shown("/metrics", ("authorization", &bearer)), Ok(Shown::Bearer));
        assert_eq!(shown(&format!("/?token={}", token.text()), ("accept", "*/*")), Ok(Shown::Address));
        assert_eq!(shown("/?token=", ("accept", "*/*")), Err(Denied::WrongToken));
        assert_eq!(shown(&format!("/metrics?token={}", token.text()), ("accept", "")), Err(Denied::NoToken));
        let cookie = format!("other=1; {}={}", COOKIE, token.text());
        let page = format!("{}events", access.path);
        assert_eq!(shown(&page, ("cookie", &cookie)), Ok(Shown::Cookie));
        assert_eq!(shown("/metrics", ("cookie", &cookie)), Err(Denied::NoToken));
        for wrong in ["Bearer", "Bearer ", "Basic eA==", "Bearer 00", "é"] {
            let head = [host, ("authorization", wrong)];
            let head = head.map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
            });
            let head = head.into_iter().collect();
            let denied = access.check(&Method::GET, &Uri::from_static("/metrics"), &head);
            assert_eq!(denied, Err(Denied::WrongToken), "{wrong}");
        }
        let head = [("host".parse::<HeaderName>().unwrap(), HeaderValue::from_static("localhost"))];
        let denied = access.check(&Method::POST, &Uri::from_static("/"), &head.into_iter().collect());
        assert_eq!(denied, Err(Denied::Method));
    }

    #[test]
    fn only_this_machine_is_called_and_other_sites_are_refused() {
        let (access, token) = access();
        let bearer = format!("Bearer {}", token.text());
        let judged = |head: &[(&'static str, &str)]| {
            judged(&access, "/metrics", &[&[("authorization", bearer.as_str())], head].concat())
        };
        for host in ["localhost:9000", "LOCALHOST", "127.0.0.1", "[::1]:8417", "10.0.0.7:1", "head:8417"] {
            assert_eq!(judged(&[("host", host)]), Ok(Shown::Bearer), "{host}");
        }
        for host in ["evil.example:8417", "localhost.evil.example", "127.0.0.1.evil.example", "", "a b"] {
            assert_eq!(judged(&[("host", host)]), Err(Denied::Host), "{host}");
        }
        assert_eq!(judged(&[]), Err(Denied::Host));
        let host = ("host", "localhost:8417");
        let same = [host, ("sec-fetch-site", "same-origin"), ("origin", "http://localhost:8417")];
        assert_eq!(judged(&same), Ok(Shown::Bearer));
        for foreign in [
            ("origin", "http://localhost:9"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert_eq!(judged(&[host, foreign]), Err(Denied::OtherSite), "{foreign:?}");
        }
        let link = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        assert_eq!(
            judged(&[&link[..], &[host, ("sec-fetch-site", "cross-site")]].concat()),
            Ok(Shown::Bearer)
        );
        let frame = [host, ("sec-fetch-site", "cross-site"), link[0], ("sec-fetch-dest", "iframe")];
        assert_eq!(judged(&frame), Err(Denied::OtherSite));
    }
}
