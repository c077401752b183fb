package contract

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads one JSON object strictly into a struct: unknown and repeated members, other letter case, wrong types, numbers
// with a fraction or an exponent where whole ones are meant or beyond the field's range, invalid UTF-8, trailing bytes and
// more than limit bytes are all refused. The error has code BadInput and names the member.
func Decode(raw []byte, limit int, into any) error {
	if fault := decode(raw, limit, into); fault != nil {
		return problems{*fault}.err(CodeBadInput)
	}
	return nil
}

// decode reads one JSON object strictly: unknown and repeated members, other letter case, invalid UTF-8 and
// trailing bytes are all refused, each with the member's name.
func decode(raw []byte, limit int, into any) *FieldError {
	if len(raw) == 0 {
		return &FieldError{"", "the input is missing: a JSON object is needed"}
	}
	if len(raw) > limit {
		return &FieldError{"", fmt.Sprintf("the whole input has %d bytes, more than the %d allowed", len(raw), limit)}
	}
	if kind := jsontext.Value(raw).Kind(); kind != '{' {
		return &FieldError{"", "the input must be a JSON object"}
	}
	err := json.Unmarshal(raw, into, json.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		field := fieldName(semantic.JSONPointer)
		switch {
		case errors.Is(err, json.ErrUnknownName):
			return &FieldError{field, "is not a field of this input: remove it or correct its name"}
		case semantic.GoType == reflect.TypeFor[Duration]() && semantic.Err != nil:
			return &FieldError{field, semantic.Err.Error()}
		case semantic.GoType == reflect.TypeFor[int]() || semantic.GoType == reflect.TypeFor[int64]():
			if semantic.JSONKind == '0' {
				return &FieldError{field, "must be a whole number, written without fraction or exponent"}
			}
			return &FieldError{field, "must be a whole number, not a " + kindName(semantic.JSONKind)}
		default:
			return &FieldError{field, "has the wrong type: a " + kindName(semantic.JSONKind) + " does not fit here"}
		}
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return &FieldError{fieldName(syntactic.JSONPointer), "is given twice"}
		}
		if field := fieldName(syntactic.JSONPointer); field != "" {
			return &FieldError{field, fmt.Sprintf("is where the input is not valid JSON at byte %d: %v", syntactic.ByteOffset, syntactic.Err)}
		}
		return &FieldError{"", fmt.Sprintf("the input is not valid JSON at byte %d: %v", syntactic.ByteOffset, syntactic.Err)}
	}
	return &FieldError{"", "the input could not be read: " + clip(err.Error(), 200)}
}

func fieldName(pointer jsontext.Pointer) string {
	return clip(strings.ReplaceAll(strings.TrimPrefix(string(pointer), "/"), "/", "."), 100)
}

func kindName(kind jsontext.Kind) string {
	switch kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean"
	case '"':
		return "string"
	case '0':
		return "number"
	case '{':
		return "object"
	case '[':
		return "list"
	default:
		return "value"
	}
}
