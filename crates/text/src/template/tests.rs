use super::*;

const CHATML: &str = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

fn render(template: &str, messages: &[Message]) -> Result<String, Error> {
    let options = RenderOptions {
        bos_token: "<s>",
        eos_token: "</s>",
        now: SystemTime::UNIX_EPOCH,
        ..Default::default()
    };
    ChatTemplate::new(template).render(messages, &options)
}

fn rendered(template: &str) -> String {
    render(template, &[]).unwrap()
}

#[test]
fn a_first_message() {
    assert_eq!(
        render(CHATML, &[Message::new("user", "Hi & <b>bye</b>")]).unwrap(),
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n\
         <|im_start|>user\nHi & <b>bye</b><|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn a_conversation_with_a_system_prompt() {
    let messages = [
        Message::new("system", "Be brief."),
        Message::new("user", "Hi"),
        Message::new("assistant", "Hello"),
        Message::new("user", "Bye"),
    ];
    let options = RenderOptions { add_generation_prompt: false, ..Default::default() };
    assert_eq!(
        ChatTemplate::new(CHATML).render(&messages, &options).unwrap(),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
         <|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
    );
}

#[test]
fn what_published_templates_rely_on() {
    assert_eq!(
        rendered("{{ bos_token }}{% if true %}\n  {% set x = ' a '.strip() %}\n{{ x }}{% endif %}\n"),
        "<s>a"
    );
    assert_eq!(
        rendered("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}"),
        "01"
    );
    assert_eq!(rendered("{{ strftime_now('%d %b %Y') }}"), "01 Jan 1970");
    assert_eq!(rendered("{% generation %}x{% endgeneration %}"), "x");
    assert_eq!(rendered("{{ not tools }}{{ tools is defined }}{{ tools is iterable }}"), "TrueTrueFalse");
    assert_eq!(
        rendered("{% set ns = namespace(a=1) %}{% for i in [2] %}{% set ns.a = i %}{% endfor %}{{ ns.a }}"),
        "2"
    );
    assert_eq!(rendered("{{ 'a-b'.split('-')[1] }}{{ {'k': 1}.items() | list }}"), "b[('k', 1)]");
    assert_eq!(rendered("{{ ['a', 'b'] | join(', ') }}{{ '-'.join(['c', 'd']) }}"), "a, bc-d");
}

#[test]
fn json_is_written_as_by_python() {
    assert_eq!(
        rendered("{{ {'b': [1, 2.5, none, true], 'a': '<é\"\\n'} | tojson }}"),
        r#"{"b": [1, 2.5, null, true], "a": "<é\"\n"}"#
    );
    assert_eq!(
        rendered("{{ {'a': [1], 'b': {}} | tojson(indent=2) }}"),
        "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}"
    );
    assert_eq!(rendered("{{ 'é😀' | tojson(ensure_ascii=true) }}"), r#""\u00e9\ud83d\ude00""#);
    assert_eq!(
        rendered("{{ {'b': 1, 'a': [1, 2]} | tojson(separators=(',', ':'), sort_keys=true) }}"),
        r#"{"a":[1,2],"b":1}"#
    );
}

#[test]
fn errors_say_where_and_what() {
    let error = render("a\n{{ raise_exception('no system\u{1b}[31m') }}", &[]).unwrap_err();
    let line = error.to_string();
    assert!(line.contains("line 2") && line.contains(r"no system\u{1b}[31m"), "{line}");
    let error = render("{% for m in messages %}{{ m.content }", &[]).unwrap_err();
    assert!(matches!(error, Error::Syntax { line: 1, .. }), "{error}");
}

/// The list `a`, nested 60 deep: each level holds the next one twice.
const NESTED: &str = "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}";

#[test]
fn texts_that_grow_without_bound_are_stopped() {
    let double = "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s OP ns.s %}{% endfor %}{{ ns.s }}";
    let big = "{% set s = 'x' * 1000000 %}";
    let templates = [
        double.replace("OP", "~"),
        double.replace("OP", "+"),
        "{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}".to_owned(),
        "{{ 'x' * 99999999 }}".to_owned(),
        format!("{big}{{{{ ([s] * 10000) | join }}}}"),
        format!("{big}{{{{ ''.join([s] * 10000) }}}}"),
        format!("{big}{{{{ s.replace('x', s) }}}}"),
        format!("{big}{{{{ s | replace('x', s) }}}}"),
        format!("{big}{{{{ ([s] * 10000) | tojson }}}}"),
        format!("{big}{{{{ [s] * 10000 }}}}"),
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".to_owned(),
    ];
    for template in templates {
        let result = render(&template, &[]);
        assert!(result.is_err(), "{template}: {} bytes", result.unwrap().len());
    }
}

#[test]
fn nested_values_are_not_unfolded() {
    for expression in [
        "ns.a",
        "ns.a ~ ''",
        "ns.a == ns.b",
        "ns.a < ns.b < ns.a",
        "ns.a in [ns.b]",
        "'x' in ns.a",
        "ns.a in 'x'",
        "{ns.a: 1}",
        "{'x': 1}[ns.a]",
        "ns == namespace(a=ns.a)",
        "ns.a is eq(ns.b)",
        "ns.a is in([ns.b])",
        "ns.a is sameas(ns.b)",
        "[ns.a] | select('eq', ns.b) | list",
        "[ns.a, ns.b] | sort",
        "[ns.a, ns.b] | unique",
        "[ns.a, ns.b] | min",
        "[{'x': ns.a}, {'x': ns.b}] | groupby('x')",
        "ns.a | string",
        "ns.a | upper",
        "ns.a | pprint",
        "ns.a | tojson",
        "ns.a | join",
        "ns.a | replace('a', 'b')",
        "ns.a | trim",
        "ns.a | e",
        "'x' | replace('x', ns.a)",
        "'%s' | format(ns.a)",
        "'%s' | format(*[ns.a])",
        "[ns.a] | map('upper') | list",
        "['x'] | map('replace', 'x', ns.a) | list",
        "''.join(ns.a)",
        "'{}'.format(ns.a)",
        "'{x}'.format(**{'x': ns.a})",
        "[ns.a].count(ns.b)",
        "{}.get(ns.a)",
        "raise_exception(ns.a)",
        "strftime_now(ns.a)",
        "range(ns.a)",
        "ns.a + 1",
        "ns.a - ns.b",
        "ns.a % ns.b",
        "-ns.a",
        "ns.a()",
        "ns.a.x.y",
        "ns.a.missing()",
        "1 | missing(ns.a)",
        "1 is missing(ns.a)",
        "[1][ns.a:ns.b]",
    ] {
        // Any end will do, but it has to come.

        let _ = render(&format!("{NESTED}{{{{ {expression} }}}}"), &[]);
    }
    for statement in [
        "{% for x in [1] %}{{ loop.changed(ns.a) }}{{ loop.changed(ns.b) }}{{ loop.cycle(ns.a) }}{% endfor %}",
        "{% set r = raise_exception %}{{ r(ns.a) }}",
        "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(ns.a) }}",
        "{% set ns.n = ns %}{{ ns ~ '' }}",
        "{% for a, b in ns.a %}{{ a ~ b }}{% endfor %}",
        "{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}{{ ns.a | length }}",
        "{% for i in range(60) %}{% set ns.a = ns.a * 2 %}{% endfor %}{{ ns.a | length }}",
        "{% for i in range(60) %}{% set ns.a = ns.a | chain(ns.a) %}{% endfor %}{{ ns.a | length }}",
        "{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}{{ ns.a | first }}{{ ns.a | last }}",
    ] {
        let _ = render(&format!("{NESTED}{statement}"), &[]);
    }
}

#[test]
fn metering_changes_no_result() {
    for (template, expected) in [
        (
            "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ [1] == [1] }}{{ 'a' in {'a': 1} }}{{ {'a': 1, 2: 'b'}[2] }}",
            "TrueFalseTrueTrueb",
        ),
        ("{{ 'a' if 'x' ~ 1 == 'x1' else 'b' }}{{ (false or 'y' == 'y') and 'z' ~ 'z' }}", "azz"),
        ("{{ '%s-%s' | format(*['a', 'b']) }}{{ [3, 1] | sort(**{'reverse': true}) }}", "a-b[3, 1]"),
        (
            "{% macro m(x, y='d') %}{{ x ~ y }}{{ caller() if caller }}{% endmacro %}{{ m('a') }}{{ m(y='b', x='c') }}{% call m('e') %}f{% endcall %}",
            "adcbedf",
        ),
        (
            "{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is not number else x ~ ';' }}{% endfor %}",
            "1;2;3;",
        ),
        (
            "{% for x in [1, 2, 3, 4] if x != 2 %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% else %}none{% endfor %}",
            "13",
        ),
        (
            "{% filter upper %}a{{ 'b' ~ 'c' }}{% endfilter %}{% set x %}{{ 'd' ~ 'e' }}{% endset %}{{ x }}",
            "ABCde",
        ),
        (
            "{% with a = 'x' ~ 'y' %}{{ a[::-1] }}{{ a[0:1] }}{% endwith %}{{ missing == 1 }}{{ missing is defined }}",
            "yxxFalseFalse",
        ),
    ] {
        assert_eq!(rendered(template), expected, "{template}");
    }
}

#[test]
fn deep_templates_end() {
    let chain = |head: &str, link: &str, n: usize, tail: &str| {
        let template = format!("{head}{}{tail}", link.repeat(n));
        assert!(template.len() <= source::MAX_LEN);
        template
    };
    for template in [
        format!("{}{}", "{% if true %}".repeat(20_000), "{% endif %}".repeat(20_000)),
        chain("{%if a%}", "{%elif a%}", 6_000, "{%endif%}"),
        chain("{{ a", "+a", 32_000, " }}"),
        // The compiler takes quadratic time for chains of operators: as many as pass take about a second.
        chain("{{ a", "+a", 1_500, " }}"),
        chain("{{ a", ".b", 8_000, " }}"),
        chain("{{ a", "|e", 8_000, " }}"),
        chain("{{ ", "-", 60_000, "1 }}"),
        chain("{{ ", "not ", 1_500, "a }}"),
        chain("{{ ", "[", 60_000, " }}"),
        chain("{{ [", "a,", 30_000, "] }}"),
        chain(
            "{% set ns = namespace(a=[]) %}{% for i in range(99999) %}",
            "{% set ns.a = [ns.a] %}",
            8,
            "{% endfor %}",
        ),
    ] {
        // Any end will do, but it has to come.
        let _ = render(&template, &[]);
    }
}
