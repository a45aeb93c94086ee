#include <algorithm>

#include "text/jinja/parser.h"
#include "text/jinja/parser_depth.h"

namespace choral::text::jinja {

constexpr size_t kMaxParameters = 1024;  // of a macro: each is compared with those before it

Result<Ast> parse_template(std::string_view source, const RenderLimits& limits) {
  CHORAL_TRY(auto tokens, tokenize(source));
  return Parser(std::move(tokens), limits).run();
}

Result<Ast> Parser::run() {
  CHORAL_RETURN_IF_ERROR(parse_body({}, &ast_.body));
  if (!unknown_.empty()) return corrupt("{}", unknown_.front());
  return std::move(ast_);
}

Status Parser::expect_block_end() {
  if (current().kind != TokenKind::kBlockEnd) return unexpected("end of statement block");
  take();
  return {};
}

Status Parser::unknown_tag(const Token& token, std::initializer_list<std::string_view> ends) {
  std::string wanted;
  for (const std::string_view end : ends) wanted += fmt::format("{}'{}'", wanted.empty() ? "" : " or ", end);
  if (!wanted.empty()) wanted = " Looking for " + wanted + ".";
  if (token.kind == TokenKind::kEnd) return corrupt("line {}: Unexpected end of template.{}", token.line, wanted);
  for (const std::string_view refused : {"include", "import", "from", "extends", "block", "autoescape"}) {
    if (token.text == refused)
      return unsupported("line {}: chat templates stand alone: the tag '{}' is not supported", token.line, token.text);
  }
  return corrupt("line {}: Encountered unknown tag '{}'.{}", token.line, token.text, wanted);
}

// After the tag's own words: its end, the body, and the begin of the end tag, whose name is current then.
Status Parser::parse_block(std::initializer_list<std::string_view> ends, Body* body) {
  Depth depth(this);
  CHORAL_RETURN_IF_ERROR(depth.check());
  skip_operator(":");
  CHORAL_RETURN_IF_ERROR(expect_block_end());
  CHORAL_RETURN_IF_ERROR(parse_body(ends, body));
  if (current().kind == TokenKind::kEnd) return unknown_tag(current(), ends);
  return {};
}

Status Parser::parse_body(std::initializer_list<std::string_view> ends, Body* body) {
  while (current().kind != TokenKind::kEnd) {
    const int line = current().line;
    if (current().kind == TokenKind::kBlockBegin) {
      take();
      for (const std::string_view end : ends)
        if (is_name(end)) return {};
      if (current().kind != TokenKind::kName) return unexpected("a tag name");
      const Token tag = current();
      CHORAL_TRY(auto stmt, parse_statement());
      if (stmt == nullptr) return unknown_tag(tag, ends);
      CHORAL_RETURN_IF_ERROR(expect_block_end());
      body->push_back(std::move(stmt));
      continue;
    }
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = StmtKind::kOutput;
    stmt->line = line;
    const Token token = take();
    if (token.kind == TokenKind::kData) {
      stmt->data = token.text;
    } else {
      CHORAL_TRY(stmt->expr, parse_tuple(true, false));
      if (current().kind != TokenKind::kVariableEnd) return unexpected("end of print statement");
      take();
    }
    body->push_back(std::move(stmt));
  }
  return {};
}

// Null for an unknown tag.
Result<std::unique_ptr<Stmt>> Parser::parse_statement() {
  auto stmt = std::make_unique<Stmt>();
  stmt->line = current().line;
  const bool soft = soft_;
  soft_ = false;
  Status status;
  if (is_name("if")) {
    status = parse_if(stmt.get());
  } else if (is_name("for")) {
    status = parse_for(stmt.get());
  } else if (is_name("set")) {
    soft_ = soft;
    status = parse_set(stmt.get());
  } else if (is_name("macro")) {
    status = parse_macro(stmt.get());
  } else if (is_name("call")) {
    status = parse_call_block(stmt.get());
  } else if (is_name("with")) {
    status = parse_with(stmt.get());
  } else if (skip_name("filter")) {
    stmt->kind = StmtKind::kFilterBlock;
    CHORAL_TRY(stmt->expr, parse_filters(nullptr, true));
    status = parse_block({"endfilter"}, &stmt->body);
    take();
  } else if (skip_name("generation")) {  // marks what the model wrote; to the text it is a scope
    stmt->kind = StmtKind::kScope;
    const int loops = std::exchange(loops_, 0);
    status = parse_block({"endgeneration"}, &stmt->body);
    loops_ = loops;
    take();
  } else if (skip_name("print")) {
    soft_ = soft;
    stmt->kind = StmtKind::kOutput;
    ExprPtr all = make(ExprKind::kConcat, stmt->line);
    while (current().kind != TokenKind::kBlockEnd && current().kind != TokenKind::kEnd) {
      if (!all->kids.empty()) CHORAL_RETURN_IF_ERROR(expect_operator(","));
      CHORAL_TRY(ExprPtr item, parse_expression());
      all->kids.push_back(std::move(item));
    }
    CHORAL_TRY(stmt->expr, finish(std::move(all)));
  } else if (is_name("break") || is_name("continue")) {
    const Token token = take();
    stmt->kind = token.text == "break" ? StmtKind::kBreak : StmtKind::kContinue;
    if (loops_ == 0) return corrupt("line {}: '{}' outside loop", token.line, token.text);
  } else {
    soft_ = soft;
    return std::unique_ptr<Stmt>();
  }
  soft_ = soft;
  CHORAL_RETURN_IF_ERROR(std::move(status));
  return stmt;
}

Status Parser::parse_if(Stmt* stmt) {
  stmt->kind = StmtKind::kIf;
  soft_ = true;
  bool is_else = false;
  while (!is_name("endif")) {
    const std::string word = take().text;
    is_else = word == "else";
    if (is_else) {
      CHORAL_RETURN_IF_ERROR(parse_block({"endif"}, &stmt->else_body));
      break;
    }
    auto& branch = stmt->branches.emplace_back();
    CHORAL_TRY(branch.first, parse_tuple(false, false));
    CHORAL_RETURN_IF_ERROR(parse_block({"elif", "else", "endif"}, &branch.second));
  }
  take();
  return {};
}

Status Parser::check_target(const Expr& target, bool in_loop_head) {
  switch (target.kind) {
    case ExprKind::kTuple:
      for (const auto& kid : target.kids) CHORAL_RETURN_IF_ERROR(check_target(*kid, in_loop_head));
      return {};
    case ExprKind::kNamespaceRef: return {};
    case ExprKind::kName:
      if (target.name == ast_.loop_name && (in_loop_head || loops_ > 0))
        return corrupt("line {}: Can't assign to special loop variable in for-loop target", target.line);
      return {};
    default: return corrupt("line {}: can't assign to an expression or constant", target.line);
  }
}

Result<ExprPtr> Parser::parse_target(bool with_namespace, bool ends_at_in) {
  ExprPtr tuple = make(ExprKind::kTuple, current().line);
  bool is_tuple = false;
  while (!at_tuple_end(ends_at_in ? "in" : "")) {
    CHORAL_TRY(ExprPtr item, parse_primary(with_namespace, true));
    tuple->kids.push_back(std::move(item));
    if (!is_operator(",")) break;
    is_tuple = true;
    take();
  }
  if (tuple->kids.empty() && !is_tuple) return unexpected("a name to assign to");
  ExprPtr target = is_tuple ? std::move(tuple) : std::move(tuple->kids[0]);
  CHORAL_RETURN_IF_ERROR(check_target(*target, ends_at_in));
  return finish(std::move(target));
}

Status Parser::parse_for(Stmt* stmt) {
  stmt->kind = StmtKind::kFor;
  take();
  CHORAL_TRY(stmt->target, parse_target(false, true));
  if (!skip_name("in")) return unexpected("'in'");
  CHORAL_TRY(stmt->expr, parse_tuple(false, false, "recursive"));
  if (skip_name("if")) {
    CHORAL_TRY(stmt->test, parse_expression());
  }
  stmt->recursive = skip_name("recursive");
  ++loops_;
  CHORAL_RETURN_IF_ERROR(parse_block({"endfor", "else"}, &stmt->body));
  --loops_;
  if (take().text == "else") {
    CHORAL_RETURN_IF_ERROR(parse_block({"endfor"}, &stmt->else_body));
    take();
  }
  return {};
}

Status Parser::parse_set(Stmt* stmt) {
  take();
  CHORAL_TRY(stmt->target, parse_target(true, false));
  if (skip_operator("=")) {
    stmt->kind = StmtKind::kSet;
    CHORAL_TRY(stmt->expr, parse_tuple(true, false));
    return {};
  }
  stmt->kind = StmtKind::kSetBlock;
  CHORAL_TRY(stmt->expr, parse_filters(nullptr, false));
  soft_ = false;
  CHORAL_RETURN_IF_ERROR(parse_block({"endset"}, &stmt->body));
  take();
  return {};
}

Status Parser::parse_signature(MacroSignature* signature) {
  CHORAL_RETURN_IF_ERROR(expect_operator("("));
  while (!is_operator(")")) {
    if (!signature->parameters.empty()) CHORAL_RETURN_IF_ERROR(expect_operator(","));
    const int line = current().line;
    CHORAL_TRY(const std::string name, expect_name());
    if (signature->parameters.size() == kMaxParameters)
      return too_large("line {}: a macro has more than {} parameters", line, kMaxParameters);
    const int index = name_index(name);
    if (std::find(signature->parameters.begin(), signature->parameters.end(), index) != signature->parameters.end())
      return corrupt("line {}: duplicate argument '{}' in macro definition", line, name);
    signature->parameters.push_back(index);
    if (skip_operator("=")) {
      CHORAL_TRY(ExprPtr value, parse_expression());
      signature->defaults.push_back(std::move(value));
    } else if (!signature->defaults.empty()) {
      return corrupt("line {}: non-default argument follows default argument", line);
    }
  }
  take();
  return {};
}

Status Parser::parse_macro_body(std::string_view end, Stmt* stmt) {
  Marks marks;
  marks_.push_back(&marks);
  const int loops = std::exchange(loops_, 0);
  const Status status = parse_block({end}, &stmt->body);
  loops_ = loops;
  marks_.pop_back();
  CHORAL_RETURN_IF_ERROR(status);
  take();
  MacroSignature& signature = stmt->signature;
  const auto declared = [&](int name) {
    return std::find(signature.parameters.begin(), signature.parameters.end(), name) != signature.parameters.end();
  };
  if (marks.caller && declared(ast_.caller_name)) {
    const auto at =
        std::find(signature.parameters.begin(), signature.parameters.end(), ast_.caller_name) - signature.parameters.begin();
    if (static_cast<size_t>(at) < signature.parameters.size() - signature.defaults.size())
      return corrupt("line {}: the special \"caller\" argument of a macro must be omitted or be given a default", stmt->line);
  }
  signature.uses_caller = marks.caller;
  signature.uses_kwargs = marks.kwargs && !declared(ast_.kwargs_name);
  signature.uses_varargs = marks.varargs && !declared(ast_.varargs_name);
  return {};
}

Status Parser::parse_macro(Stmt* stmt) {
  stmt->kind = StmtKind::kMacro;
  take();
  CHORAL_TRY(stmt->signature.name, expect_name());
  stmt->name = name_index(stmt->signature.name);
  CHORAL_RETURN_IF_ERROR(parse_signature(&stmt->signature));
  return parse_macro_body("endmacro", stmt);
}

Status Parser::parse_call_block(Stmt* stmt) {
  stmt->kind = StmtKind::kCallBlock;
  take();
  if (is_operator("(")) CHORAL_RETURN_IF_ERROR(parse_signature(&stmt->signature));
  CHORAL_TRY(stmt->expr, parse_expression());
  if (stmt->expr->kind != ExprKind::kCall) return corrupt("line {}: expected call", stmt->line);
  return parse_macro_body("endcall", stmt);
}

Status Parser::parse_with(Stmt* stmt) {
  stmt->kind = StmtKind::kWith;
  take();
  while (current().kind != TokenKind::kBlockEnd) {
    if (!stmt->bindings.empty()) CHORAL_RETURN_IF_ERROR(expect_operator(","));
    auto& binding = stmt->bindings.emplace_back();
    CHORAL_TRY(binding.first, parse_primary(false, true));
    CHORAL_RETURN_IF_ERROR(check_target(*binding.first, false));
    CHORAL_RETURN_IF_ERROR(expect_operator("="));
    CHORAL_TRY(binding.second, parse_expression());
  }
  CHORAL_RETURN_IF_ERROR(parse_block({"endwith"}, &stmt->body));
  take();
  return {};
}

}  // namespace choral::text::jinja
