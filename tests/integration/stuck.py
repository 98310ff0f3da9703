"""Tic-tac-toe with a player that says one thing whatever the board is: a collapse to be taught."""

from pettingllms.envs.games.tic_tac_toe import TicTacToe


class Stuck(TicTacToe):
    id = "stuck-v1"
    players = {**TicTacToe.players, "stuck": lambda env, *_: env.reply_of("5")}
