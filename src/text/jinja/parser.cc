#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/parser_depth.h"

namespace choral::text::jinja {
namespace {

std::string describe(const Token& token) {
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

constexpr std::pair<std::string_view, Operator> kComparisons[] = {
    {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
    {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual},
};

}  // namespace

Parser::Parser(std::vector<Token> tokens, const RenderLimits& limits) : tokens_(std::move(tokens)), limits_(limits) {
  ast_.loop_name = name_index("loop");
  ast_.caller_name = name_index("caller");
  ast_.kwargs_name = name_index("kwargs");
  ast_.varargs_name = name_index("varargs");
}

int Parser::name_index(std::string_view name) {
  const auto [it, added] = name_indices_.try_emplace(std::string(name), static_cast<int>(ast_.names.size()));
  if (added) ast_.names.emplace_back(name);
  return it->second;
}

Token Parser::take() {
  Token token = tokens_[next_];
  if (next_ + 1 < tokens_.size()) ++next_;
  return token;
}

bool Parser::skip_operator(std::string_view op) {
  if (!is_operator(op)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

Status Parser::unexpected(std::string_view wanted) {
  return corrupt("line {}: expected {}, got '{}'", current().line, wanted, describe(current()));
}

Status Parser::expect_operator(std::string_view op) { return skip_operator(op) ? Status() : unexpected(fmt::format("'{}'", op)); }

Result<std::string> Parser::expect_name() {
  if (current().kind != TokenKind::kName) return unexpected("a name");
  return take().text;
}

ExprPtr Parser::make(ExprKind kind, int line) {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  return node;
}

ExprPtr Parser::make(ExprKind kind, int line, ExprPtr a, ExprPtr b) {
  ExprPtr node = make(kind, line);
  node->kids.push_back(std::move(a));
  if (b) node->kids.push_back(std::move(b));
  return node;
}

Result<ExprPtr> Parser::finish(ExprPtr node) {
  const auto deepen = [&](const ExprPtr& kid) {
    if (kid) node->depth = std::max(node->depth, kid->depth + 1);
  };
  for (const auto& kid : node->kids) deepen(kid);
  for (const auto& kid : node->arguments.positional) deepen(kid);
  for (const auto& kid : node->arguments.named) deepen(kid.second);
  deepen(node->arguments.spread);
  deepen(node->arguments.spread_named);
  // A chain a + b + c … is a deep tree without deep brackets.
  if (node->depth > 2 * limits_.max_parse_depth)
    return too_large("line {}: an expression has more than {} levels (max_parse_depth)", node->line, 2 * limits_.max_parse_depth);
  return node;
}

Result<ExprPtr> Parser::parse_conditional() {
  Depth depth(this);
  CHORAL_RETURN_IF_ERROR(depth.check());
  int line = current().line;
  const bool soft = soft_;
  const size_t unknown = unknown_.size();  // what stands before `if` turns out to be a branch only after it was parsed
  CHORAL_TRY(ExprPtr value, parse_or());
  while (skip_name("if")) {
    unknown_.resize(unknown);
    soft_ = true;
    CHORAL_TRY(ExprPtr test, parse_or());
    ExprPtr otherwise;
    if (skip_name("else")) {
      CHORAL_TRY(otherwise, parse_conditional());
    }
    soft_ = soft;
    ExprPtr node = make(ExprKind::kConditional, line, std::move(test), std::move(value));
    node->kids.push_back(std::move(otherwise));
    CHORAL_TRY(value, finish(std::move(node)));
    line = current().line;
  }
  return value;
}

Result<ExprPtr> Parser::parse_or() {
  CHORAL_TRY(ExprPtr left, parse_and());
  while (is_name("or")) {
    const int line = take().line;
    CHORAL_TRY(ExprPtr right, parse_and());
    CHORAL_TRY(left, finish(make(ExprKind::kOr, line, std::move(left), std::move(right))));
  }
  return left;
}

Result<ExprPtr> Parser::parse_and() {
  CHORAL_TRY(ExprPtr left, parse_not());
  while (is_name("and")) {
    const int line = take().line;
    CHORAL_TRY(ExprPtr right, parse_not());
    CHORAL_TRY(left, finish(make(ExprKind::kAnd, line, std::move(left), std::move(right))));
  }
  return left;
}

Result<ExprPtr> Parser::parse_not() {
  if (!is_name("not")) return parse_compare();
  Depth depth(this);
  CHORAL_RETURN_IF_ERROR(depth.check());
  const int line = take().line;
  CHORAL_TRY(ExprPtr operand, parse_not());
  return finish(make(ExprKind::kNot, line, std::move(operand), nullptr));
}

Result<ExprPtr> Parser::parse_compare() {
  const int line = current().line;
  CHORAL_TRY(ExprPtr first, parse_sum());
  ExprPtr node;
  while (true) {
    std::optional<Operator> op;
    for (const auto& [text, comparison] : kComparisons)
      if (is_operator(text)) op = comparison;
    if (is_name("in")) op = Operator::kIn;
    if (is_name("not") && look().kind == TokenKind::kName && look().text == "in") {
      take();
      op = Operator::kNotIn;
    }
    if (!op) break;
    take();
    if (!node) node = make(ExprKind::kCompare, line, std::move(first), nullptr);
    CHORAL_TRY(ExprPtr operand, parse_sum());
    node->ops.push_back(*op);
    node->kids.push_back(std::move(operand));
  }
  return node ? finish(std::move(node)) : Result<ExprPtr>(std::move(first));
}

Result<ExprPtr> Parser::parse_sum() {
  CHORAL_TRY(ExprPtr left, parse_concat());
  while (is_operator("+") || is_operator("-")) {
    const Token op = take();
    CHORAL_TRY(ExprPtr right, parse_concat());
    left = make(ExprKind::kBinary, op.line, std::move(left), std::move(right));
    left->op = op.text == "+" ? Operator::kAdd : Operator::kSubtract;
    CHORAL_TRY(left, finish(std::move(left)));
  }
  return left;
}

Result<ExprPtr> Parser::parse_concat() {
  const int line = current().line;
  CHORAL_TRY(ExprPtr first, parse_product());
  if (!is_operator("~")) return first;
  ExprPtr node = make(ExprKind::kConcat, line, std::move(first), nullptr);
  while (skip_operator("~")) {
    CHORAL_TRY(ExprPtr operand, parse_product());
    node->kids.push_back(std::move(operand));
  }
  return finish(std::move(node));
}

Result<ExprPtr> Parser::parse_product() {
  CHORAL_TRY(ExprPtr left, parse_power());
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    const Token op = take();
    CHORAL_TRY(ExprPtr right, parse_power());
    left = make(ExprKind::kBinary, op.line, std::move(left), std::move(right));
    left->op = op.text == "*"    ? Operator::kMultiply
               : op.text == "/"  ? Operator::kDivide
               : op.text == "//" ? Operator::kFloorDivide
                                 : Operator::kModulo;
    CHORAL_TRY(left, finish(std::move(left)));
  }
  return left;
}

Result<ExprPtr> Parser::parse_power() {
  CHORAL_TRY(ExprPtr left, parse_unary(true));
  while (is_operator("**")) {
    const int line = take().line;
    CHORAL_TRY(ExprPtr right, parse_unary(true));
    left = make(ExprKind::kBinary, line, std::move(left), std::move(right));
    left->op = Operator::kPower;
    CHORAL_TRY(left, finish(std::move(left)));
  }
  return left;
}

Result<ExprPtr> Parser::parse_unary(bool with_filter) {
  ExprPtr node;
  if (is_operator("-") || is_operator("+")) {
    Depth depth(this);
    CHORAL_RETURN_IF_ERROR(depth.check());
    const Token op = take();
    CHORAL_TRY(ExprPtr operand, parse_unary(false));
    CHORAL_TRY(node,
               finish(make(op.text == "-" ? ExprKind::kNegate : ExprKind::kPositive, op.line, std::move(operand), nullptr)));
  } else {
    CHORAL_TRY(node, parse_primary(false));
  }
  CHORAL_TRY(node, parse_postfix(std::move(node)));
  return with_filter ? parse_filter_expr(std::move(node)) : Result<ExprPtr>(std::move(node));
}

Result<ExprPtr> Parser::parse_primary(bool with_namespace, bool target) {
  const int line = current().line;
  ExprPtr node = make(ExprKind::kConst, line);
  if (is_operator("(")) {
    take();
    CHORAL_TRY(node, parse_tuple(true, true));
    CHORAL_RETURN_IF_ERROR(expect_operator(")"));
    return node;
  }
  if (is_operator("[")) return parse_list();
  if (is_operator("{")) return parse_dict();
  switch (current().kind) {
    case TokenKind::kString: {
      std::string text;
      while (current().kind == TokenKind::kString) text += take().text;
      node->constant = Value::text(std::move(text));
      return node;
    }
    case TokenKind::kInteger: node->constant = Value::integer(take().integer); return node;
    case TokenKind::kFloat: node->constant = Value::number(take().number); return node;
    case TokenKind::kName: return parse_name(take().text, std::move(node), with_namespace, target);
    default: return corrupt("line {}: unexpected '{}'", line, describe(current()));
  }
}

Result<ExprPtr> Parser::parse_name(const std::string& name, ExprPtr node, bool with_namespace, bool target) {
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    node->constant = Value::boolean(name[0] == 't' || name[0] == 'T');
  } else if (name == "none" || name == "None") {
    node->constant = Value::none();
  } else if (with_namespace && skip_operator(".")) {
    node->kind = ExprKind::kNamespaceRef;
    node->name = name_index(name);
    CHORAL_TRY(node->text, expect_name());
  } else {
    node->kind = ExprKind::kName;
    node->name = name_index(name);
    for (Marks* marks : marks_) {
      if (name == "caller") marks->caller = !target;
      if (name == "kwargs") marks->kwargs = !target;
      if (name == "varargs") marks->varargs = !target;
    }
  }
  return node;
}

bool Parser::at_tuple_end(std::string_view end_name) const {
  return current().kind == TokenKind::kVariableEnd || current().kind == TokenKind::kBlockEnd || is_operator(")") ||
         (!end_name.empty() && is_name(end_name));
}

Result<ExprPtr> Parser::parse_tuple(bool with_conditional, bool parentheses, std::string_view end_name) {
  const int line = current().line;
  ExprPtr tuple = make(ExprKind::kTuple, line);
  bool is_tuple = false;
  while (true) {
    if (!tuple->kids.empty()) CHORAL_RETURN_IF_ERROR(expect_operator(","));
    if (at_tuple_end(end_name)) break;
    CHORAL_TRY(ExprPtr item, with_conditional ? parse_conditional() : parse_or());
    tuple->kids.push_back(std::move(item));
    if (!is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!tuple->kids.empty()) return std::move(tuple->kids[0]);
    if (!parentheses) return unexpected("an expression");
  }
  return finish(std::move(tuple));
}

Result<ExprPtr> Parser::parse_list() {
  ExprPtr node = make(ExprKind::kList, take().line);
  while (!is_operator("]")) {
    if (!node->kids.empty()) CHORAL_RETURN_IF_ERROR(expect_operator(","));
    if (is_operator("]")) break;
    CHORAL_TRY(ExprPtr item, parse_expression());
    node->kids.push_back(std::move(item));
  }
  take();
  return finish(std::move(node));
}

Result<ExprPtr> Parser::parse_dict() {
  ExprPtr node = make(ExprKind::kDict, take().line);
  while (!is_operator("}")) {
    if (!node->kids.empty()) CHORAL_RETURN_IF_ERROR(expect_operator(","));
    if (is_operator("}")) break;
    CHORAL_TRY(ExprPtr key, parse_expression());
    CHORAL_RETURN_IF_ERROR(expect_operator(":"));
    CHORAL_TRY(ExprPtr value, parse_expression());
    node->kids.push_back(std::move(key));
    node->kids.push_back(std::move(value));
  }
  take();
  return finish(std::move(node));
}

}  // namespace choral::text::jinja
