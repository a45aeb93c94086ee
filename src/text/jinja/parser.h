// Tokens to syntax tree. The grammar is Jinja's, with its oddities: unary minus binds tighter than a filter, a test takes
// one bare argument, `a if b` without else is undefined otherwise. Unknown filters and tests are errors here, except on a
// branch of an if, where Jinja lets them wait. break/continue outside a loop, and deep nesting, are errors too.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"
#include "text/jinja/limits.h"

namespace choral::text::jinja {

// corrupt (bad syntax), unsupported (include, import, extends, block, autoescape) or too_large, each with its line.
Result<Ast> parse_template(std::string_view source, const RenderLimits& limits);

class Parser {
 public:
  Parser(std::vector<Token> tokens, const RenderLimits& limits);
  Result<Ast> run();

 private:
  struct Marks {  // special names read inside a macro or call block
    bool caller = false, kwargs = false, varargs = false;
  };
  struct Depth;  // counts nesting while it lives

  // statements (parser_statements.cc)
  Status parse_body(std::initializer_list<std::string_view> ends, Body* body);
  Status parse_block(std::initializer_list<std::string_view> ends, Body* body);
  Result<std::unique_ptr<Stmt>> parse_statement();
  Status parse_if(Stmt* stmt);
  Status parse_for(Stmt* stmt);
  Status parse_set(Stmt* stmt);
  Status parse_macro(Stmt* stmt);
  Status parse_call_block(Stmt* stmt);
  Status parse_macro_body(std::string_view end, Stmt* stmt);
  Status parse_with(Stmt* stmt);
  Status parse_signature(MacroSignature* signature);
  Status expect_block_end();
  Status unknown_tag(const Token& token, std::initializer_list<std::string_view> ends);
  Result<ExprPtr> parse_target(bool with_namespace, bool ends_at_in);
  Status check_target(const Expr& target, bool in_loop_head);

  // expressions (parser.cc)
  Result<ExprPtr> parse_expression() { return parse_conditional(); }
  Result<ExprPtr> parse_conditional();
  Result<ExprPtr> parse_or();
  Result<ExprPtr> parse_and();
  Result<ExprPtr> parse_not();
  Result<ExprPtr> parse_compare();
  Result<ExprPtr> parse_sum();
  Result<ExprPtr> parse_concat();
  Result<ExprPtr> parse_product();
  Result<ExprPtr> parse_power();
  Result<ExprPtr> parse_unary(bool with_filter);
  Result<ExprPtr> parse_primary(bool with_namespace, bool target = false);
  Result<ExprPtr> parse_name(const std::string& name, ExprPtr node, bool with_namespace, bool target);
  Result<ExprPtr> parse_tuple(bool with_conditional, bool parentheses, std::string_view end_name = {});
  Result<ExprPtr> parse_list();
  Result<ExprPtr> parse_dict();

  // what follows an operand (parser_postfix.cc)
  Result<ExprPtr> parse_postfix(ExprPtr node);
  Result<ExprPtr> parse_filter_expr(ExprPtr node);
  Result<ExprPtr> parse_subscript(ExprPtr node);
  Result<ExprPtr> parse_subscribed();
  Result<ExprPtr> parse_call(ExprPtr node);
  Result<ExprPtr> parse_filters(ExprPtr node, bool first_is_inline);
  Result<ExprPtr> parse_test(ExprPtr node);
  Status parse_arguments(CallArguments* arguments);
  bool at_tuple_end(std::string_view end_name) const;
  Result<ExprPtr> finish(ExprPtr node);  // depth of the tree from its kids

  const Token& current() const { return tokens_[next_]; }
  const Token& look() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool is_operator(std::string_view op) const { return current().kind == TokenKind::kOperator && current().text == op; }
  bool is_name(std::string_view name) const { return current().kind == TokenKind::kName && current().text == name; }
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  Status expect_operator(std::string_view op);
  Result<std::string> expect_name();
  Status unexpected(std::string_view wanted);
  ExprPtr make(ExprKind kind, int line);
  ExprPtr make(ExprKind kind, int line, ExprPtr a, ExprPtr b);
  int name_index(std::string_view name);

  std::vector<Token> tokens_;
  size_t next_ = 0;
  const RenderLimits& limits_;
  Ast ast_;
  std::map<std::string, int, std::less<>> name_indices_;
  std::vector<Marks*> marks_;         // the macros around the current token
  std::vector<std::string> unknown_;  // filters and tests that do not exist, where that is an error
  int depth_ = 0;
  int loops_ = 0;      // around the current token, within its macro
  bool soft_ = false;  // on a branch that may never run
};

}  // namespace choral::text::jinja
