import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.envs.webshop.lookup.porter import stem

# Examples of Porter's article, step by step, and where his later programs differ from it.
PAIRS = """
caresses caress|ponies poni|ties ti|caress caress|cats cat
feed feed|agreed agre|plastered plaster|bled bled|motoring motor|sing sing
conflated conflat|troubled troubl|sized size|hopping hop|tanned tan|falling fall|hissing hiss|fizzed fizz|failing fail
filing file|happy happi|sky sky
relational relat|conditional condit|rational ration|valenci valenc|hesitanci hesit|digitizer digit|conformabli conform
radicalli radic|differentli differ|vileli vile|analogousli analog|vietnamization vietnam|predication predic
operator oper|feudalism feudal|decisiveness decis|hopefulness hope|callousness callous|formaliti formal
sensitiviti sensit|sensibiliti sensibl
triplicate triplic|formative form|formalize formal|electriciti electr|electrical electr|hopeful hope|goodness good
revival reviv|allowance allow|inference infer|airliner airlin|gyroscopic gyroscop|adjustable adjust|defensible defens
irritant irrit|replacement replac|adjustment adjust|dependent depend|adoption adopt|homologou homolog|communism commun
activate activ|angulariti angular|homologous homolog|effective effect|bowdlerize bowdler
probate probat|rate rate|cease ceas|controll control|roll roll
us us|as as|is is|a a|technology technolog|technologies technolog|assembly assembl|possibly possibl|y y
enjoyed enjoi|playing plai|toy toi|say sai|yes ye|bytes byte|syzygy syzygi
3.5x 3.5x|o'neil o'neil|1,234s 1,234|café café|s s|ing ing|bed bed|eed eed|yyy yyi
union union|station station|opinion opinion|companion companion|religion religion|adoption adopt
"""


@pytest.mark.parametrize("pair", PAIRS.replace("\n", "|").strip("|").split("|"))
def test_words_have_the_stems_of_porters_own_program(pair: str) -> None:
    word, expected = pair.split(" ")
    assert stem(word) == expected


@given(st.text(alphabet="aeiouybdlstz'", max_size=14))
def test_a_stem_is_never_longer_than_its_word_by_more_than_an_e(word: str) -> None:
    assert len(stem(word)) <= len(word) + 1
    assert stem(word)[:1] == word[:1]
