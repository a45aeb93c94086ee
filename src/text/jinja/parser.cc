#include "text/jinja/parser.h"

#include <initializer_list>
namespace choral::text::jinja {
namespace {

constexpr size_t kMaxParameters = 1024;  // of a macro: each is compared with those before it

using Ends = std::initializer_list<std::string_view>;

class StatementParser : ExpressionParser {
 public:
  StatementParser(std::vector<Token> tokens, const RenderLimits& limits) : ExpressionParser(std::move(tokens), limits) {}

  Result<Ast> run() {
    CHORAL_RETURN_IF_ERROR(parse_body({}, &ast_.body));
    CHORAL_RETURN_IF_ERROR(std::move(unknown_));
    return std::move(ast_);
  }

 private:
  Status unknown_tag(const Token& token, Ends ends) {
    std::string wanted;
    for (const std::string_view end : ends) wanted += fmt::format("{}'{}'", wanted.empty() ? "" : " or ", end);
    if (!wanted.empty()) wanted = " Looking for " + wanted + ".";
    if (token.kind == TokenKind::kEnd) return corrupt("line {}: Unexpected end of template.{}", token.line, wanted);
    for (const std::string_view refused : {"include", "import", "from", "extends", "block", "autoescape"}) {
      if (token.text == refused)
        return unsupported("line {}: chat templates stand alone: the tag '{}' is not supported", token.line, token.text);
    }
    if (token.text == "call" || token.text == "print" || token.text == "with")
      return unsupported("line {}: the tag '{}' is not supported; use set and {{{{ … }}}}", token.line, token.text);
    return corrupt("line {}: Encountered unknown tag '{}'.{}", token.line, token.text, wanted);
  }

  Status expect_block_end() {
    if (current().kind != TokenKind::kBlockEnd) return unexpected("end of statement block");
    return take(), Status();
  }

  // After the tag's own words: its end, the body, and the begin of the end tag, whose name is current then.
  Status parse_block(Ends ends, Body* body) {
    const Nesting nesting(&depth_);
    CHORAL_RETURN_IF_ERROR(check_depth());
    skip(":");
    CHORAL_RETURN_IF_ERROR(expect_block_end());
    CHORAL_RETURN_IF_ERROR(parse_body(ends, body));
    return current().kind == TokenKind::kEnd ? unknown_tag(current(), ends) : Status();
  }

  // A block with one end, which is taken.
  Status parse_whole_block(std::string_view end, Body* body) {
    CHORAL_RETURN_IF_ERROR(parse_block({end}, body));
    return take(), Status();
  }

  Status parse_body(Ends ends, Body* body) {
    while (current().kind != TokenKind::kEnd) {
      auto stmt = std::make_unique<Stmt>();
      stmt->line = line();
      const Token token = take();
      if (token.kind == TokenKind::kBlockBegin) {
        for (const std::string_view end : ends)
          if (is(end)) return {};
        if (current().kind != TokenKind::kName) return unexpected("a tag name");
        const Token tag = take();
        stmt->line = tag.line;
        // Within a tag that always runs, names must be known again; `set` belongs to the branch that it stands on.
        const bool soft = std::exchange(soft_, tag.text == "if" || (soft_ && tag.text == "set"));
        CHORAL_TRY(const bool known, parse_statement(tag, stmt.get()));
        soft_ = soft;
        if (!known) return unknown_tag(tag, ends);
        CHORAL_RETURN_IF_ERROR(expect_block_end());
      } else if (token.kind == TokenKind::kData) {
        stmt->text = token.text;
      } else {
        CHORAL_TRY(stmt->expr, parse_tuple(true, false));
        if (current().kind != TokenKind::kVariableEnd) return unexpected("end of print statement");
        take();
      }
      body->push_back(std::move(stmt));
    }
    return {};
  }

  // After the tag's name. False for an unknown tag.
  Result<bool> parse_statement(const Token& tag, Stmt* stmt) {
    Status status;
    if (tag.text == "if") {
      status = parse_if(stmt);
    } else if (tag.text == "for") {
      status = parse_for(stmt);
    } else if (tag.text == "set") {
      status = parse_set(stmt);
    } else if (tag.text == "macro") {
      status = parse_macro(stmt);
    } else if (tag.text == "filter") {
      stmt->kind = StmtKind::kFilterBlock;
      CHORAL_TRY(stmt->expr, parse_filters(nullptr, true));
      status = parse_whole_block("endfilter", &stmt->body);
    } else if (tag.text == "generation") {  // marks what the model wrote; to the text it is a scope
      stmt->kind = StmtKind::kScope;
      const int loops = std::exchange(loops_, 0);
      status = parse_whole_block("endgeneration", &stmt->body);
      loops_ = loops;
    } else if (tag.text == "break" || tag.text == "continue") {
      stmt->kind = tag.text == "break" ? StmtKind::kBreak : StmtKind::kContinue;
      if (loops_ == 0) status = corrupt("line {}: '{}' outside loop", tag.line, tag.text);
    } else {
      return false;
    }
    CHORAL_RETURN_IF_ERROR(std::move(status));
    return true;
  }

  Status parse_if(Stmt* stmt) {
    stmt->kind = StmtKind::kIf;
    while (true) {
      auto& [test, body] = stmt->branches.emplace_back();
      CHORAL_TRY(test, parse_tuple(false, false));
      CHORAL_RETURN_IF_ERROR(parse_block({"elif", "else", "endif"}, &body));
      const std::string word = take().text;
      if (word == "endif") return {};
      if (word == "else") return parse_whole_block("endif", &stmt->else_body);
    }
  }

  Status check_target(const Expr& target, bool in_loop_head) {
    switch (target.kind) {
      case ExprKind::kTuple:
        for (const auto& kid : target.kids) CHORAL_RETURN_IF_ERROR(check_target(*kid, in_loop_head));
        return {};
      case ExprKind::kNamespaceRef: return {};
      case ExprKind::kName:
        if (target.name == kLoopName && (in_loop_head || loops_ > 0))
          return corrupt("line {}: Can't assign to special loop variable in for-loop target", target.line);
        return {};
      default: return corrupt("line {}: can't assign to an expression or constant", target.line);
    }
  }

  Result<ExprPtr> parse_target(bool with_namespace, bool ends_at_in) {
    ExprPtr tuple = make(ExprKind::kTuple, line());
    bool is_tuple = false;
    while (!at_tuple_end(ends_at_in ? "in" : "")) {
      CHORAL_TRY(ExprPtr item, parse_primary(true, with_namespace));
      tuple->kids.push_back(std::move(item));
      if (!skip(",")) break;
      is_tuple = true;
    }
    if (tuple->kids.empty() && !is_tuple) return unexpected("a name to assign to");
    ExprPtr target = is_tuple ? std::move(tuple) : std::move(tuple->kids[0]);
    CHORAL_RETURN_IF_ERROR(check_target(*target, ends_at_in));
    return finish(std::move(target));
  }

  Status parse_for(Stmt* stmt) {
    stmt->kind = StmtKind::kFor;
    CHORAL_TRY(stmt->target, parse_target(false, true));
    if (!skip("in")) return unexpected("'in'");
    CHORAL_TRY(stmt->expr, parse_tuple(false, false, "recursive"));
    if (skip("if")) {
      CHORAL_TRY(stmt->test, parse_expression());
    }
    if (is("recursive")) return refused("recursive loops are not supported; use a macro");
    ++loops_;
    CHORAL_RETURN_IF_ERROR(parse_block({"endfor", "else"}, &stmt->body));
    --loops_;
    return take().text == "else" ? parse_whole_block("endfor", &stmt->else_body) : Status();
  }

  Status parse_set(Stmt* stmt) {
    CHORAL_TRY(stmt->target, parse_target(true, false));
    if (skip("=")) {
      stmt->kind = StmtKind::kSet;
      CHORAL_TRY(stmt->expr, parse_tuple(true, false));
      return {};
    }
    stmt->kind = StmtKind::kSetBlock;
    CHORAL_TRY(stmt->expr, parse_filters(nullptr, false));
    soft_ = false;
    return parse_whole_block("endset", &stmt->body);
  }

  Status parse_macro(Stmt* stmt) {
    stmt->kind = StmtKind::kMacro;
    CHORAL_TRY(stmt->text, expect_name());
    stmt->name = name_index(stmt->text);
    auto& parameters = stmt->parameters;
    CHORAL_RETURN_IF_ERROR(expect("("));
    while (!is(")")) {
      if (!parameters.empty()) CHORAL_RETURN_IF_ERROR(expect(","));
      const int at = line();
      CHORAL_TRY(const std::string name, expect_name());
      if (name == "caller") return refused("a macro's parameter 'caller' is not supported");
      if (parameters.size() == kMaxParameters)
        return too_large("line {}: a macro has more than {} parameters", at, kMaxParameters);
      const int index = name_index(name);
      if (std::find(parameters.begin(), parameters.end(), index) != parameters.end())
        return corrupt("line {}: duplicate argument '{}' in macro definition", at, name);
      parameters.push_back(index);
      if (skip("=")) {
        CHORAL_TRY(ExprPtr value, parse_expression());
        stmt->defaults.push_back(std::move(value));
      } else if (!stmt->defaults.empty()) {
        return corrupt("line {}: non-default argument follows default argument", at);
      }
    }
    take();
    macros_.push_back(stmt);
    const int loops = std::exchange(loops_, 0);
    CHORAL_RETURN_IF_ERROR(parse_whole_block("endmacro", &stmt->body));
    loops_ = loops;
    macros_.pop_back();
    return {};
  }
};

}  // namespace

Result<Ast> parse_template(std::string_view source, const RenderLimits& limits) {
  CHORAL_TRY(auto tokens, tokenize(source));
  return StatementParser(std::move(tokens), limits).run();
}

}  // namespace choral::text::jinja
