"""Twenty hostile strings that a model might write. Each must be shown as plain text."""

MARK = "pwned"
HOSTILE = [
    "<script>document.title='pwned'</script>",
    "<img src=x onerror=\"document.title='pwned'\">",
    "<svg onload=\"document.title='pwned'\"></svg>",
    "</script><script>document.title='pwned'</script>",
    "</div></article><h1>a heading of my own</h1>",
    "<a href=\"javascript:document.title='pwned'\">a link</a>",
    "<iframe srcdoc=\"<script>parent.document.title='pwned'</script>\"></iframe>",
    "<style>body{display:none}</style>",
    "<link rel=stylesheet href=//198.51.100.7/x.css><img src=//198.51.100.7/x.png>",
    "<meta http-equiv=refresh content='0;url=//198.51.100.7'>",
    "<base href='//198.51.100.7/'><form action='/'><input autofocus>",
    "[a link](javascript:alert(1)) ![x](//198.51.100.7/x.png)",
    "${document.title='pwned'} {{constructor.constructor('document.title=1')()}}",
    "\u202etxet denrut\u202c and \u2066isolated\u2069",
    "zero\u200bwidth\u200d and \ufeff marks",
    "control \x00\x07\x1b[31mred\x1b[0m\x9b signs",
    "Z\u0351\u036b\u0343\u036a\u0342\u036b\u033da\u0300\u0301\u0302l\u0337g\u0338o\u0339" * 20,
    "one line without a break " + "A" * 60_000,
    "&lt;b&gt; &amp; &#x3c;script&#x3e; \\u003cscript\\u003e",
    "__proto__ constructor toString \u2028\u2029 ]]> <!-- --> '\"`",
]
