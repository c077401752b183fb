// Package api is Reclaim's door for programs in any language: JSON over HTTP. A bearer key decides tenant, actor and
// rights; every answer that is not a success is a problem as RFC 9457 has it, with the code and the retry advice of
// package contract. The OpenAPI description is made from the routes, so that it says what they do.
package api
