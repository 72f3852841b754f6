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
    assert_eq!(rendered("{{ not tools }}{{ tools is defined }}"), "TrueTrue");
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
    for expression in
        ["ns.a", "ns.a | tojson", "ns.a | join", "''.join(ns.a)", "'{}'.format(ns.a)", "[ns.a].count(ns.b)"]
    {
        // Any end will do, but it has to come.
        // Any end will do, but it has to come.
        let _ = render(&format!("{NESTED}{{{{ {expression} }}}}"), &[]);
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
        // The compiler takes quadratic time for chains of operators, too much for a test at full length.
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
