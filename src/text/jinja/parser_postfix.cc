// What may follow an operand: .name, [key], (arguments), |filter and is test.
#include "text/jinja/filters.h"
#include "text/jinja/parser.h"
#include "text/jinja/parser_depth.h"
#include "text/jinja/predicates.h"

namespace choral::text::jinja {

Result<ExprPtr> Parser::parse_postfix(ExprPtr node) {
  while (true) {
    if (is_operator(".") || is_operator("[")) {
      CHORAL_TRY(node, parse_subscript(std::move(node)));
    } else if (is_operator("(")) {
      CHORAL_TRY(node, parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> Parser::parse_filter_expr(ExprPtr node) {
  while (true) {
    if (is_operator("|")) {
      CHORAL_TRY(node, parse_filters(std::move(node), false));
    } else if (is_name("is")) {
      CHORAL_TRY(node, parse_test(std::move(node)));
    } else if (is_operator("(")) {
      CHORAL_TRY(node, parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> Parser::parse_subscript(ExprPtr node) {
  const Token token = take();
  ExprPtr key;
  if (token.text == ".") {
    const Token attribute = take();
    if (attribute.kind == TokenKind::kName) {
      ExprPtr out = make(ExprKind::kAttribute, token.line, std::move(node), nullptr);
      out->text = attribute.text;
      return finish(std::move(out));
    }
    if (attribute.kind != TokenKind::kInteger) return corrupt("line {}: expected a name or number after '.'", attribute.line);
    key = make(ExprKind::kConst, token.line);
    key->constant = Value::integer(attribute.integer);
  } else {
    ExprPtr tuple = make(ExprKind::kTuple, token.line);
    while (!is_operator("]")) {
      if (!tuple->kids.empty()) CHORAL_RETURN_IF_ERROR(expect_operator(","));
      CHORAL_TRY(ExprPtr item, parse_subscribed());
      if (item->kind == ExprKind::kSlice && (!tuple->kids.empty() || is_operator(",")))
        return unsupported("line {}: a slice inside a tuple index", token.line);
      tuple->kids.push_back(std::move(item));
    }
    take();
    if (tuple->kids.size() == 1) {
      key = std::move(tuple->kids[0]);
    } else {
      CHORAL_TRY(key, finish(std::move(tuple)));
    }
  }
  return finish(make(ExprKind::kItem, token.line, std::move(node), std::move(key)));
}

Result<ExprPtr> Parser::parse_subscribed() {
  const int line = current().line;
  ExprPtr parts[3];
  if (!is_operator(":")) {
    CHORAL_TRY(parts[0], parse_expression());
    if (!is_operator(":")) return std::move(parts[0]);
  }
  for (int i = 1; i < 3 && skip_operator(":"); ++i) {
    if (!is_operator(":") && !is_operator("]") && !is_operator(",")) {
      CHORAL_TRY(parts[i], parse_expression());
    }
  }
  ExprPtr node = make(ExprKind::kSlice, line);
  for (ExprPtr& part : parts) node->kids.push_back(std::move(part));
  return finish(std::move(node));
}

Status Parser::parse_arguments(CallArguments* arguments) {
  const int line = current().line;
  const auto bad = [&] { return corrupt("line {}: invalid syntax for function call expression", line); };
  CHORAL_RETURN_IF_ERROR(expect_operator("("));
  bool comma_due = false;
  while (!is_operator(")")) {
    if (comma_due) {
      CHORAL_RETURN_IF_ERROR(expect_operator(","));
      if (is_operator(")")) break;
    }
    comma_due = true;
    if (skip_operator("*")) {
      if (arguments->spread || arguments->spread_named) return bad();
      CHORAL_TRY(arguments->spread, parse_expression());
    } else if (skip_operator("**")) {
      if (arguments->spread_named) return bad();
      CHORAL_TRY(arguments->spread_named, parse_expression());
    } else if (current().kind == TokenKind::kName && look().kind == TokenKind::kOperator && look().text == "=") {
      if (arguments->spread_named) return bad();
      std::string name = take().text;
      take();
      CHORAL_TRY(ExprPtr value, parse_expression());
      for (const auto& earlier : arguments->named)
        if (earlier.first == name) return corrupt("line {}: keyword argument repeated: {}", line, name);
      arguments->named.emplace_back(std::move(name), std::move(value));
    } else {
      if (arguments->spread || arguments->spread_named || !arguments->named.empty()) return bad();
      CHORAL_TRY(ExprPtr value, parse_expression());
      arguments->positional.push_back(std::move(value));
    }
  }
  return expect_operator(")");
}

Result<ExprPtr> Parser::parse_call(ExprPtr node) {
  ExprPtr call = make(ExprKind::kCall, current().line, std::move(node), nullptr);
  CHORAL_RETURN_IF_ERROR(parse_arguments(&call->arguments));
  return finish(std::move(call));
}

Result<ExprPtr> Parser::parse_filters(ExprPtr node, bool first_is_inline) {
  while (first_is_inline || is_operator("|")) {
    if (!first_is_inline) take();
    first_is_inline = false;
    ExprPtr filter = make(ExprKind::kFilter, current().line);
    filter->kids.push_back(std::move(node));
    CHORAL_TRY(filter->text, expect_name());
    while (skip_operator(".")) {
      CHORAL_TRY(const std::string part, expect_name());
      filter->text += "." + part;
    }
    if (is_operator("(")) CHORAL_RETURN_IF_ERROR(parse_arguments(&filter->arguments));
    filter->filter = find_filter(filter->text);
    if (filter->filter == nullptr && !soft_)
      unknown_.push_back(fmt::format("line {}: No filter named '{}'.", filter->line, filter->text));
    CHORAL_TRY(node, finish(std::move(filter)));
  }
  return node;
}

Result<ExprPtr> Parser::parse_test(ExprPtr node) {
  const int line = take().line;
  const bool negated = skip_name("not");
  ExprPtr test = make(ExprKind::kTest, line, std::move(node), nullptr);
  CHORAL_TRY(test->text, expect_name());
  while (skip_operator(".")) {
    CHORAL_TRY(const std::string part, expect_name());
    test->text += "." + part;
  }
  const TokenKind kind = current().kind;
  if (is_operator("(")) {
    CHORAL_RETURN_IF_ERROR(parse_arguments(&test->arguments));
  } else if ((kind == TokenKind::kName || kind == TokenKind::kString || kind == TokenKind::kInteger ||
              kind == TokenKind::kFloat || is_operator("[") || is_operator("{")) &&
             !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) return corrupt("line {}: You cannot chain multiple tests with is", current().line);
    Depth depth(this);
    CHORAL_RETURN_IF_ERROR(depth.check());
    CHORAL_TRY(ExprPtr argument, parse_primary(false));
    CHORAL_TRY(argument, parse_postfix(std::move(argument)));
    test->arguments.positional.push_back(std::move(argument));
  }
  test->test = find_predicate(test->text);
  if (test->test == nullptr && !soft_) unknown_.push_back(fmt::format("line {}: No test named '{}'.", line, test->text));
  CHORAL_TRY(test, finish(std::move(test)));
  return negated ? finish(make(ExprKind::kNot, line, std::move(test), nullptr)) : Result<ExprPtr>(std::move(test));
}

}  // namespace choral::text::jinja
