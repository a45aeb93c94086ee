#include <optional>

#include "text/jinja/builtins.h"
#include "text/jinja/parser.h"

namespace choral::text::jinja {
namespace {

std::string_view describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData: return "template text";
    case TokenKind::kVariableBegin: return "begin of print statement";
    case TokenKind::kVariableEnd: return "end of print statement";
    case TokenKind::kBlockBegin: return "begin of statement block";
    case TokenKind::kBlockEnd: return "end of statement block";
    case TokenKind::kEnd: return "end of template";
    default: return token.text;
  }
}

// Operators between two operands, all to the left, from the loosest level to the tightest.
struct Infix {
  std::string_view text;
  int level;
  ExprKind kind;
  Operator op = Operator::kAdd;
};
constexpr int kCompareLevel = 2, kUnaryLevel = 7;
constexpr Infix kInfix[] = {
    {"or", 0, ExprKind::kOr},
    {"and", 1, ExprKind::kAnd},
    {"+", 3, ExprKind::kBinary, Operator::kAdd},
    {"-", 3, ExprKind::kBinary, Operator::kSubtract},
    {"~", 4, ExprKind::kConcat},
    {"*", 5, ExprKind::kBinary, Operator::kMultiply},
    {"/", 5, ExprKind::kBinary, Operator::kDivide},
    {"//", 5, ExprKind::kBinary, Operator::kFloorDivide},
    {"%", 5, ExprKind::kBinary, Operator::kModulo},
    {"**", 6, ExprKind::kBinary, Operator::kPower},
};

constexpr std::pair<std::string_view, Operator> kComparisons[] = {
    {"==", Operator::kEqual},  {"!=", Operator::kNotEqual},     {"<", Operator::kLess}, {"<=", Operator::kLessEqual},
    {">", Operator::kGreater}, {">=", Operator::kGreaterEqual}, {"in", Operator::kIn},
};

}  // namespace

ExpressionParser::ExpressionParser(std::vector<Token> tokens, const RenderLimits& limits)
    : tokens_(std::move(tokens)), limits_(limits) {
  name_index("loop");
}

Status ExpressionParser::check_depth() {
  if (depth_ <= limits_.max_parse_depth) return {};
  return too_large("line {}: tags and brackets are nested more than {} deep (max_parse_depth)", line(), limits_.max_parse_depth);
}

int ExpressionParser::name_index(std::string_view name) {
  const auto [it, added] = name_indices_.try_emplace(std::string(name), static_cast<int>(ast_.names.size()));
  if (added) ast_.names.emplace_back(name);
  return it->second;
}

Token ExpressionParser::take() {
  Token token = tokens_[next_];
  if (next_ + 1 < tokens_.size()) ++next_;
  return token;
}

bool ExpressionParser::skip(std::string_view word) {
  if (!is(word)) return false;
  take();
  return true;
}

Status ExpressionParser::expect(std::string_view word) { return skip(word) ? Status() : unexpected(fmt::format("'{}'", word)); }

Status ExpressionParser::unexpected(std::string_view wanted) {
  return corrupt("line {}: expected {}, got '{}'", line(), wanted, describe(current()));
}

Status ExpressionParser::refused(std::string_view what) { return unsupported("line {}: {}", line(), what); }

Result<std::string> ExpressionParser::expect_name() {
  if (current().kind != TokenKind::kName) return unexpected("a name");
  return take().text;
}

Result<ExprPtr> ExpressionParser::finish(ExprPtr node) {
  const auto deepen = [&](const ExprPtr& kid) {
    if (kid) node->depth = std::max(node->depth, kid->depth + 1);
  };
  for (const auto& kid : node->kids) deepen(kid);
  for (const auto& kid : node->positional) deepen(kid);
  for (const auto& kid : node->named) deepen(kid.second);
  deepen(node->spread);
  if (node->depth > 2 * limits_.max_parse_depth)
    return too_large("line {}: an expression has more than {} levels (max_parse_depth)", node->line, 2 * limits_.max_parse_depth);
  return node;
}

Result<ExprPtr> ExpressionParser::parse_expression() {
  const Nesting nesting(&depth_);
  CHORAL_RETURN_IF_ERROR(check_depth());
  int begin = line();
  const bool soft = soft_;
  const Status unknown = unknown_;  // what stands before `if` turns out to be a branch only after it was parsed
  CHORAL_TRY(ExprPtr value, parse_infix(0));
  while (skip("if")) {
    unknown_ = unknown;
    soft_ = true;
    CHORAL_TRY(ExprPtr test, parse_infix(0));
    ExprPtr otherwise;
    if (skip("else")) {
      CHORAL_TRY(otherwise, parse_expression());
    }
    soft_ = soft;
    CHORAL_TRY(value, finish(make(ExprKind::kConditional, begin, std::move(test), std::move(value), std::move(otherwise))));
    begin = line();
  }
  return value;
}

Result<ExprPtr> ExpressionParser::parse_infix(int level) {
  if (level == kCompareLevel) return parse_not();
  if (level == kUnaryLevel) return parse_unary(true);
  CHORAL_TRY(ExprPtr left, parse_infix(level + 1));
  while (true) {
    const auto* infix = std::find_if(std::begin(kInfix), std::end(kInfix),
                                     [&](const Infix& candidate) { return candidate.level == level && is(candidate.text); });
    if (infix == std::end(kInfix)) return left;
    const int at = take().line;
    CHORAL_TRY(ExprPtr right, parse_infix(level + 1));
    if (infix->kind == ExprKind::kConcat && left->kind == ExprKind::kConcat) {
      left->kids.push_back(std::move(right));  // a ~ b ~ c makes one text, not two
    } else {
      left = make(infix->kind, at, std::move(left), std::move(right));
      left->op = infix->op;
    }
    CHORAL_TRY(left, finish(std::move(left)));
  }
}

Result<ExprPtr> ExpressionParser::parse_not() {
  if (!is("not")) return parse_compare();
  const Nesting nesting(&depth_);
  CHORAL_RETURN_IF_ERROR(check_depth());
  const int at = take().line;
  CHORAL_TRY(ExprPtr operand, parse_not());
  return finish(make(ExprKind::kNot, at, std::move(operand)));
}

Result<ExprPtr> ExpressionParser::parse_compare() {
  const int begin = line();
  CHORAL_TRY(ExprPtr first, parse_infix(kCompareLevel + 1));
  ExprPtr node;
  while (true) {
    std::optional<Operator> op;
    for (const auto& [text, comparison] : kComparisons)
      if (is(text)) op = comparison;
    if (is("not") && is(look(), "in")) {
      take();
      op = Operator::kNotIn;
    }
    if (!op) break;
    take();
    if (!node) node = make(ExprKind::kCompare, begin, std::move(first));
    CHORAL_TRY(ExprPtr operand, parse_infix(kCompareLevel + 1));
    node->ops.push_back(*op);
    node->kids.push_back(std::move(operand));
  }
  return node ? finish(std::move(node)) : Result<ExprPtr>(std::move(first));
}

Result<ExprPtr> ExpressionParser::parse_unary(bool with_filter) {
  ExprPtr node;
  if (is("+")) return refused("the unary '+' is not supported");
  if (is("-")) {
    const Nesting nesting(&depth_);
    CHORAL_RETURN_IF_ERROR(check_depth());
    const int at = take().line;
    CHORAL_TRY(ExprPtr operand, parse_unary(false));
    CHORAL_TRY(node, finish(make(ExprKind::kNegate, at, std::move(operand))));
  } else {
    CHORAL_TRY(node, parse_primary(false, false));
  }
  CHORAL_TRY(node, parse_postfix(std::move(node)));
  while (with_filter) {
    if (is("|")) {
      CHORAL_TRY(node, parse_filters(std::move(node), false));
    } else if (is("is")) {
      CHORAL_TRY(node, parse_test(std::move(node)));
    } else if (is("(")) {
      CHORAL_TRY(node, parse_call(std::move(node)));
    } else {
      break;
    }
  }
  return node;
}

Result<ExprPtr> ExpressionParser::parse_primary(bool is_target, bool with_namespace) {
  if (skip("(")) {
    CHORAL_TRY(ExprPtr inner, parse_tuple(true, true));
    CHORAL_RETURN_IF_ERROR(expect(")"));
    return inner;
  }
  if (is("[") || is("{")) return parse_list_or_dict();
  ExprPtr node = make(ExprKind::kConst, line());
  switch (current().kind) {
    case TokenKind::kString: {
      std::string text;
      while (current().kind == TokenKind::kString) text += take().text;
      node->constant = Value::text(std::move(text));
      return node;
    }
    case TokenKind::kInteger: node->constant = Value::integer(take().integer); return node;
    case TokenKind::kFloat: node->constant = Value::number(take().number); return node;
    case TokenKind::kName: return parse_name(is_target, with_namespace);
    default: return corrupt("line {}: unexpected '{}'", line(), describe(current()));
  }
}

Result<ExprPtr> ExpressionParser::parse_name(bool is_target, bool with_namespace) {
  const Token token = take();
  const std::string& name = token.text;
  ExprPtr node = make(ExprKind::kConst, token.line);
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    node->constant = Value::boolean(name[0] == 't' || name[0] == 'T');
  } else if (name == "none" || name == "None") {
    node->constant = Value::none();
  } else {
    node->kind = ExprKind::kName;
    node->name = name_index(name);
    if (with_namespace && skip(".")) {
      node->kind = ExprKind::kNamespaceRef;
      CHORAL_TRY(node->text, expect_name());
    }
    const auto declares = [&](const Stmt* macro) {
      return std::find(macro->parameters.begin(), macro->parameters.end(), node->name) != macro->parameters.end();
    };
    if (!is_target && !macros_.empty() && (name == "varargs" || name == "kwargs" || name == "caller") &&
        std::none_of(macros_.begin(), macros_.end(), declares))
      return refused(fmt::format("'{}' in a macro is not supported; give the macro a parameter", name));
  }
  return node;
}

bool ExpressionParser::at_tuple_end(std::string_view end_name) const {
  return current().kind == TokenKind::kVariableEnd || current().kind == TokenKind::kBlockEnd || is(")") ||
         (!end_name.empty() && is(end_name));
}

Result<ExprPtr> ExpressionParser::parse_tuple(bool with_conditional, bool parentheses, std::string_view end_name) {
  ExprPtr tuple = make(ExprKind::kTuple, line());
  bool is_tuple = false;
  while (true) {
    if (!tuple->kids.empty()) CHORAL_RETURN_IF_ERROR(expect(","));
    if (at_tuple_end(end_name)) break;
    CHORAL_TRY(ExprPtr item, with_conditional ? parse_expression() : parse_infix(0));
    tuple->kids.push_back(std::move(item));
    if (!is(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!tuple->kids.empty()) return std::move(tuple->kids[0]);
    if (!parentheses) return unexpected("an expression");
  }
  return finish(std::move(tuple));
}

Result<ExprPtr> ExpressionParser::parse_list_or_dict() {
  const Token open = take();
  const bool is_dict = open.text == "{";
  const std::string_view close = is_dict ? "}" : "]";
  ExprPtr node = make(is_dict ? ExprKind::kDict : ExprKind::kList, open.line);
  while (!is(close)) {
    if (!node->kids.empty()) CHORAL_RETURN_IF_ERROR(expect(","));
    if (is(close)) break;
    CHORAL_TRY(ExprPtr item, parse_expression());
    node->kids.push_back(std::move(item));
    if (!is_dict) continue;
    CHORAL_RETURN_IF_ERROR(expect(":"));
    CHORAL_TRY(ExprPtr value, parse_expression());
    node->kids.push_back(std::move(value));
  }
  take();
  return finish(std::move(node));
}

Result<ExprPtr> ExpressionParser::parse_postfix(ExprPtr node) {
  while (true) {
    if (is(".") || is("[")) {
      CHORAL_TRY(node, parse_subscript(std::move(node)));
    } else if (is("(")) {
      CHORAL_TRY(node, parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> ExpressionParser::parse_subscript(ExprPtr node) {
  const Token token = take();
  if (token.text == ".") {
    const Token attribute = take();
    if (attribute.kind == TokenKind::kName) {
      ExprPtr out = make(ExprKind::kAttribute, token.line, std::move(node));
      out->text = attribute.text;
      return finish(std::move(out));
    }
    if (attribute.kind != TokenKind::kInteger) return corrupt("line {}: expected a name or number after '.'", attribute.line);
    ExprPtr key = make(ExprKind::kConst, token.line);
    key->constant = Value::integer(attribute.integer);
    return finish(make(ExprKind::kItem, token.line, std::move(node), std::move(key)));
  }
  ExprPtr out = make(ExprKind::kSlice, token.line, std::move(node));
  for (int part = 0; part < 3; ++part) {
    ExprPtr key;
    if (!is(":") && !is("]")) {
      CHORAL_TRY(key, parse_expression());
    }
    if (part == 0 && is("]") && key == nullptr) return unexpected("an index");
    out->kids.push_back(std::move(key));
    if (part == 0 && !is(":")) out->kind = ExprKind::kItem;
    if (out->kind == ExprKind::kItem || part == 2 || !skip(":")) break;
  }
  if (is(",")) return refused("an index of several parts, as x[1, 2], is not supported");
  CHORAL_RETURN_IF_ERROR(expect("]"));
  if (out->kind == ExprKind::kSlice) out->kids.resize(4);
  return finish(std::move(out));
}

Status ExpressionParser::parse_arguments(Expr* call) {
  const int begin = line();
  CHORAL_RETURN_IF_ERROR(expect("("));
  bool first = true;
  while (!is(")")) {
    if (!std::exchange(first, false)) CHORAL_RETURN_IF_ERROR(expect(","));
    if (is(")")) break;
    if (is("**")) return refused("'**' before an argument is not supported");
    if (call->spread || (is("*") && !call->named.empty()))
      return refused("'*' before other than the last argument is not supported");
    if (skip("*")) {
      CHORAL_TRY(call->spread, parse_expression());
    } else if (current().kind == TokenKind::kName && is(look(), "=")) {
      std::string name = take().text;
      take();
      CHORAL_TRY(ExprPtr value, parse_expression());
      for (const auto& earlier : call->named)
        if (earlier.first == name) return corrupt("line {}: keyword argument repeated: {}", begin, name);
      call->named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call->named.empty()) return corrupt("line {}: invalid syntax for function call expression", begin);
      CHORAL_TRY(ExprPtr value, parse_expression());
      call->positional.push_back(std::move(value));
    }
  }
  take();
  return {};
}

Result<ExprPtr> ExpressionParser::parse_call(ExprPtr node) {
  ExprPtr call = make(ExprKind::kCall, line(), std::move(node));
  CHORAL_RETURN_IF_ERROR(parse_arguments(call.get()));
  return finish(std::move(call));
}

void ExpressionParser::note_unknown(const Expr& node, std::string_view kind) {
  if (node.builtin != nullptr || soft_ || !unknown_.ok()) return;
  const Status status = no_builtin(kind, node.text);
  unknown_ = status.code() == Code::kUnsupported ? unsupported("line {}: {}", node.line, status.message())
                                                 : corrupt("line {}: {}", node.line, status.message());
}

Result<ExprPtr> ExpressionParser::parse_filters(ExprPtr node, bool first_is_inline) {
  while (first_is_inline || is("|")) {
    if (!std::exchange(first_is_inline, false)) take();
    ExprPtr filter = make(ExprKind::kFilter, line(), std::move(node));
    CHORAL_TRY(filter->text, expect_name());
    if (is("(")) CHORAL_RETURN_IF_ERROR(parse_arguments(filter.get()));
    filter->builtin = find_builtin(filters(), filter->text);
    note_unknown(*filter, "filter");
    CHORAL_TRY(node, finish(std::move(filter)));
  }
  return node;
}

Result<ExprPtr> ExpressionParser::parse_test(ExprPtr node) {
  const int begin = take().line;
  const bool negated = skip("not");
  ExprPtr test = make(ExprKind::kTest, begin, std::move(node));
  CHORAL_TRY(test->text, expect_name());
  const TokenKind kind = current().kind;
  if (is("(")) {
    CHORAL_RETURN_IF_ERROR(parse_arguments(test.get()));
  } else if ((kind == TokenKind::kName || kind == TokenKind::kString || kind == TokenKind::kInteger ||
              kind == TokenKind::kFloat || is("[") || is("{")) &&
             !is("else") && !is("or") && !is("and")) {
    if (is("is")) return corrupt("line {}: You cannot chain multiple tests with is", line());
    const Nesting nesting(&depth_);
    CHORAL_RETURN_IF_ERROR(check_depth());
    CHORAL_TRY(ExprPtr argument, parse_primary(false, false));
    CHORAL_TRY(argument, parse_postfix(std::move(argument)));
    test->positional.push_back(std::move(argument));
  }
  test->builtin = find_builtin(tests(), test->text);
  note_unknown(*test, "test");
  CHORAL_TRY(test, finish(std::move(test)));
  return negated ? finish(make(ExprKind::kNot, begin, std::move(test))) : Result<ExprPtr>(std::move(test));
}

}  // namespace choral::text::jinja
