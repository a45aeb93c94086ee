// Tokens to syntax tree. The grammar is Jinja's, with its oddities: unary minus binds tighter than a filter, a test takes
// one bare argument, `a if b` without else is undefined otherwise. Unknown filters and tests are errors here, except on a
// branch of an if, where Jinja lets them wait. break/continue outside a loop, and deep nesting, are errors too.
// Descent over the tokens is recursive, so each open bracket and tag is counted (depth_), and a chain a + b + … by the depth
// of its tree (finish).
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"
#include "text/jinja/limits.h"

namespace choral::text::jinja {

// corrupt (bad syntax), unsupported (what no chat template needs, by name) or too_large, each with its line.
Result<Ast> parse_template(std::string_view source, const RenderLimits& limits);

// The expressions (parse_expression.cc); parser.cc adds the statements.
class ExpressionParser {
 protected:
  ExpressionParser(std::vector<Token> tokens, const RenderLimits& limits);

  Status check_depth();                // of the open brackets and tags
  Result<ExprPtr> parse_expression();  // with the inline if
  Result<ExprPtr> parse_infix(int level);
  Result<ExprPtr> parse_not();
  Result<ExprPtr> parse_compare();
  Result<ExprPtr> parse_unary(bool with_filter);
  Result<ExprPtr> parse_primary(bool is_target, bool with_namespace);
  Result<ExprPtr> parse_name(bool is_target, bool with_namespace);
  // Items up to the end of the tag, a bracket or `end_name`; one without a comma is no tuple.
  Result<ExprPtr> parse_tuple(bool with_conditional, bool parentheses, std::string_view end_name = {});
  Result<ExprPtr> parse_list_or_dict();
  Result<ExprPtr> parse_postfix(ExprPtr node);
  Result<ExprPtr> parse_subscript(ExprPtr node);
  Result<ExprPtr> parse_call(ExprPtr node);
  Result<ExprPtr> parse_filters(ExprPtr node, bool first_is_inline);
  Result<ExprPtr> parse_test(ExprPtr node);
  Status parse_arguments(Expr* call);
  bool at_tuple_end(std::string_view end_name) const;
  void note_unknown(const Expr& node, std::string_view kind);

  template <class... Kids>
  static ExprPtr make(ExprKind kind, int line, Kids... kids) {
    auto node = std::make_unique<Expr>();
    node->kind = kind;
    node->line = line;
    (node->kids.push_back(std::move(kids)), ...);
    return node;
  }
  Result<ExprPtr> finish(ExprPtr node);  // depth of the tree from its kids

  const Token& current() const { return tokens_[next_]; }
  const Token& look() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  int line() const { return current().line; }
  Token take();
  static bool is(const Token& token, std::string_view word) {  // a name or operator
    return (token.kind == TokenKind::kOperator || token.kind == TokenKind::kName) && token.text == word;
  }
  bool is(std::string_view word) const { return is(current(), word); }
  bool skip(std::string_view word);
  Status expect(std::string_view word);
  Result<std::string> expect_name();
  Status unexpected(std::string_view wanted);
  Status refused(std::string_view what);  // unsupported, with the line
  int name_index(std::string_view name);

  std::vector<Token> tokens_;
  size_t next_ = 0;
  const RenderLimits& limits_;
  Ast ast_;
  std::map<std::string, int, std::less<>> name_indices_;
  std::vector<const Stmt*> macros_;  // around the current token
  Status unknown_;                   // the first filter or test that does not exist, where that is an error
  int depth_ = 0;
  int loops_ = 0;      // around the current token, within its macro
  bool soft_ = false;  // on a branch that may never run
};

}  // namespace choral::text::jinja
