//! The conditions of a layer's requests in an OpenAPI document of `utoipa`, so clients generated from it can send them.

use http::{Method, Request};
use ifmatch_core::precondition::Preconditions;
use utoipa::Modify;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::{ObjectBuilder, OpenApi, RefOr, Response, Type};

use crate::ConditionalLayer;
use crate::config::LayerConfig;

/// Adds the header fields and responses of the layer to the operations of a guarded router.
///
/// GET and HEAD get `If-None-Match`, `ETag` and 304. Guarded writes get `If-Match`, `If-None-Match`, `ETag`, 409, 412
/// and 503, and 428 where a condition is [required](crate::Builder::require_preconditions). Whatever the document
/// already has stays as it is.
///
/// The document must have the paths that clients send, since the layer's predicates see them: call this after nesting. If the document
/// also has operations that aren't behind the layer, call it on the part that is, and merge both.
///
/// ```
/// use ifmatch::ConditionalLayer;
/// use utoipa::Modify;
/// use utoipa::openapi::path::{HttpMethod, OperationBuilder, PathItem, PathsBuilder};
/// use utoipa::openapi::{OpenApiBuilder, Response};
///
/// let save = OperationBuilder::new().response("204", Response::new("The note is saved."));
/// let paths = PathsBuilder::new().path("/notes/{id}", PathItem::new(HttpMethod::Put, save));
/// let mut document = OpenApiBuilder::new().paths(paths).build();
/// ConditionalLayer::new().modify(&mut document);
/// let save = document.paths.get_path_operation("/notes/{id}", HttpMethod::Put).unwrap();
/// assert!(save.responses.responses.contains_key("412"));
/// ```
impl Modify for ConditionalLayer {
    fn modify(&self, document: &mut OpenApi) {
        for (path, item) in &mut document.paths.paths {
            for (method, operation) in operations(item) {
                describe(&self.shared.config, &method, path, operation);
            }
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let all = [
        (Method::GET, &mut item.get),
        (Method::HEAD, &mut item.head),
        (Method::PUT, &mut item.put),
        (Method::PATCH, &mut item.patch),
        (Method::POST, &mut item.post),
        (Method::DELETE, &mut item.delete),
    ];
    all.into_iter()
        .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

fn describe(config: &LayerConfig, method: &Method, path: &str, operation: &mut Operation) {
    let Ok(request) = Request::builder().method(method).uri(path).body(()) else {
        return;
    };
    let (head, ()) = request.into_parts();
    if [Method::GET, Method::HEAD].contains(method) {
        add_tag(operation);
        add_parameter(
            operation,
            "If-None-Match",
            "The ETag of the version that the client has. 304 if it is the current one.",
        );
        add_response(operation, "304", "The client has the current version.");
    } else if config.guards(&head) {
        if *method != Method::DELETE {
            add_tag(operation);
        }
        add_parameter(
            operation,
            "If-Match",
            "The ETag of the version to replace. 412 if another one is current.",
        );
        add_parameter(
            operation,
            "If-None-Match",
            "`*` to create the resource. 412 if it exists.",
        );
        add_response(
            operation,
            "409",
            "Another write is in flight: retry after the time in Retry-After.",
        );
        add_response(
            operation,
            "412",
            "Another version is current. Nothing was changed.",
        );
        add_response(
            operation,
            "503",
            "The versions can't be compared at present, or the outcome is unknown.",
        );
        if config.refuses(&head, &Preconditions::NONE) {
            add_response(
                operation,
                "428",
                "The request needs If-Match or If-None-Match. Nothing was changed.",
            );
        }
    }
}

/// Adds `ETag` to the successful responses.
fn add_tag(operation: &mut Operation) {
    for (status, response) in &mut operation.responses.responses {
        if let RefOr::T(response) = response
            && status.starts_with('2')
        {
            response
                .headers
                .entry("ETag".to_owned())
                .or_insert_with(|| tag().into());
        }
    }
}

fn tag() -> Header {
    let text = ObjectBuilder::new().schema_type(Type::String).build();
    HeaderBuilder::new()
        .schema(Some(text))
        .description(Some("The version, for If-Match and If-None-Match."))
        .build()
}

fn add_parameter(operation: &mut Operation, name: &str, description: &str) {
    let known = operation.parameters.get_or_insert_default();
    let is_it = |known: &Parameter| {
        known.parameter_in == ParameterIn::Header && known.name.eq_ignore_ascii_case(name)
    };
    if !known
        .iter()
        .any(|known| matches!(known, RefOr::T(known) if is_it(known)))
    {
        let text = ObjectBuilder::new().schema_type(Type::String).build();
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Header);
        known.push(RefOr::T(
            parameter
                .description(Some(description))
                .schema(Some(text))
                .build(),
        ));
    }
}

fn add_response(operation: &mut Operation, status: &str, description: &str) {
    let responses = &mut operation.responses.responses;
    responses
        .entry(status.to_owned())
        .or_insert_with(|| RefOr::T(Response::new(description)));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use utoipa::openapi::OpenApiBuilder;
    use utoipa::openapi::path::{HttpMethod, OperationBuilder, PathsBuilder};

    use super::*;
    use crate::RequirePreconditions;

    /// Returns the operations of a document after the layer has described them, by method.
    fn described(layer: &ConditionalLayer, path: &str) -> Value {
        let operation = || {
            let own = ParameterBuilder::new()
                .name("if-match")
                .parameter_in(ParameterIn::Header)
                .description(Some("own"));
            let operation = OperationBuilder::new()
                .parameter(own)
                .response("200", Response::new("done"));
            operation.response("304", Response::new("own"))
        };
        let methods = [
            HttpMethod::Get,
            HttpMethod::Put,
            HttpMethod::Post,
            HttpMethod::Delete,
            HttpMethod::Options,
        ];
        let items = methods.map(|method| PathItem::new(method, operation()));
        let paths = items
            .into_iter()
            .fold(PathsBuilder::new(), |paths, item| paths.path(path, item));
        let mut document = OpenApiBuilder::new().paths(paths).build();
        layer.modify(&mut document);
        serde_json::to_value(&document).unwrap()["paths"][path].clone()
    }

    fn names(operation: &Value) -> (Vec<&str>, Vec<&str>, bool) {
        let parameters = operation["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .map(|its| its["name"].as_str().unwrap());
        let responses = operation["responses"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str);
        (
            parameters.collect(),
            responses.collect(),
            operation["responses"]["200"]["headers"]["ETag"].is_object(),
        )
    }

    #[test]
    fn each_operation_gets_what_the_layer_answers_it() {
        let layer = ConditionalLayer::builder()
            .require_preconditions(RequirePreconditions::for_writes())
            .require_where(|head| head.uri.path().starts_with("/notes/"))
            .build();
        let item = described(&layer, "/notes/{id}");
        let writes = vec!["200", "304", "409", "412", "428", "503"];
        assert_eq!(
            names(&item["get"]),
            (vec!["if-match", "If-None-Match"], vec!["200", "304"], true)
        );
        assert_eq!(
            names(&item["put"]),
            (vec!["if-match", "If-None-Match"], writes.clone(), true)
        );
        assert_eq!(
            names(&item["delete"]),
            (vec!["if-match", "If-None-Match"], writes, false)
        );
        assert_eq!(
            names(&item["options"]),
            (vec!["if-match"], vec!["200", "304"], false)
        );
        assert_eq!(item["get"]["responses"]["304"]["description"], json!("own"));
        assert_eq!(item["put"]["parameters"][0]["description"], json!("own"));
        let other = described(&layer, "/other");
        assert!(
            !names(&other["put"]).1.contains(&"428") && names(&other["put"]).1.contains(&"412")
        );
    }

    #[test]
    fn a_post_has_conditions_only_if_it_is_guarded() {
        let item = described(&ConditionalLayer::new(), "/notes");
        assert_eq!(
            names(&item["post"]),
            (vec!["if-match"], vec!["200", "304"], false)
        );
        let all = ConditionalLayer::builder()
            .guard_where(|head| head.uri.path() == "/notes")
            .build();
        assert!(names(&described(&all, "/notes")["post"]).1.contains(&"412"));
        assert!(!names(&described(&all, "/other")["put"]).1.contains(&"412"));
    }
}
